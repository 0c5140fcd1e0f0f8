"""The logical nodes and expressions of Catalyst that a transform may use: the row-wise and deterministic ones.

Catalyst's own `deterministic` flag is no help (docs/design.md, section 6): it is true for the clock, for `first`, for
`limit` and for every Python UDF. So every expression that is not listed here is refused, also new ones of a newer
Spark. Names are those of Spark 4.3's classes, without `org.apache.spark.sql.catalyst.expressions.`.
"""

from __future__ import annotations


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_STRUCTURE = _words("""
    Alias AttributeReference Literal Cast UpCast TryEval NamedLambdaVariable LambdaFunction With CommonExpressionDef
    CommonExpressionRef KnownNotNull KnownNullable KnownNotContainsNull KnownFloatingPointNormalized TypeOf
    CreateNamedStruct CreateArray CreateMap GetStructField GetArrayStructFields GetArrayItem GetMapValue ElementAt
    TryElementAt Get UpdateFields WithField DropField AssertTrue RaiseError NamedArgumentExpression
""")

_ARITHMETIC = _words("""
    Add Subtract Multiply Divide IntegralDivide Remainder Pmod UnaryMinus UnaryPositive Abs TryAdd TrySubtract
    TryMultiply TryDivide TryMod Acos Acosh Asin Asinh Atan Atan2 Atanh Cbrt Ceil RoundCeil Conv Cos Cosh Cot Csc
    EulerNumber Exp Expm1 Factorial Floor RoundFloor Greatest Least Hypot Log Log10 Log1p Log2 Logarithm Pi Pow BRound
    Round Rint Sec Signum Sin Sinh Sqrt Tan Tanh ToDegrees ToRadians WidthBucket Bin Hex Unhex BitwiseAnd BitwiseCount
    BitwiseGet BitwiseNot BitwiseOr BitwiseXor ShiftLeft ShiftRight ShiftRightUnsigned BitmapBitPosition
    BitmapBucketNumber BitmapCount CheckOverflow MakeDecimal UnscaledValue
""")

_LOGIC = _words("""
    And Or Not EqualTo EqualNullSafe EqualNull GreaterThan GreaterThanOrEqual LessThan LessThanOrEqual Between In
    InSet IsNull IsNotNull IsNaN IsUnknown IsNotUnknown AtLeastNNonNulls If CaseWhen Coalesce NaNvl NullIf
    NullIfResult NullIfZero ZeroIfNull Nvl Nvl2
""")

_STRINGS = _words("""
    Ascii Base32 Base64 BinaryPad BinaryPredicate BitLength Chr Collate Collation ResolvedCollation Concat ConcatWs
    Contains Decode Elt Encode EndsWith FindInSet FormatNumber FormatString ILike InitCap IsValidUTF8 JaroWinkler Left
    Length Levenshtein Like LikeAll LikeAny NotLikeAll NotLikeAny Lower Luhncheck MakeValidUTF8 Mask OctetLength
    Overlay ParseUrl Quote RLike RegExpCount RegExpExtract RegExpExtractAll RegExpInStr RegExpReplace RegExpSubStr
    Reverse Right Sentences SoundEx SplitPart StartsWith StringDecode StringInstr StringInstrWithOccurrence StringLPad
    StringLocate StringRPad StringRepeat StringReplace StringSpace StringSplit StringSplitSQL StringToMap
    StringTranslate StringTrim StringTrimBoth StringTrimLeft StringTrimRight Substring SubstringIndex ToBinary
    ToCharacter ToNumber TryParseUrl TryToBinary TryToNumber TryUrlDecode TryValidateUTF8 UnBase32 UnBase64 Upper
    UrlDecode UrlEncode ValidateUTF8
""")

_DATES = _words("""
    AddMonths ConvertTimezone CurrentTimeZone DateAdd DateAddInterval DateAddYMInterval DateDiff DateFormatClass
    DateFromUnixDate DatePart DateSub DatetimeSub DayName DayOfMonth DayOfWeek DayOfYear DivideDTInterval
    DivideInterval DivideYMInterval Extract ExtractANSIIntervalDays ExtractANSIIntervalHours
    ExtractANSIIntervalMinutes ExtractANSIIntervalMonths ExtractANSIIntervalSeconds ExtractANSIIntervalYears
    ExtractIntervalDays ExtractIntervalHours ExtractIntervalMinutes ExtractIntervalMonths ExtractIntervalSeconds
    ExtractIntervalYears FromUTCTimestamp FromUnixTime GetTimestamp Hour LastDay MakeDTInterval MakeDate MakeInterval
    MakeTimestamp MakeTimestampFromDateTime MakeTimestampNTZ MakeYMInterval MicrosToTimestamp MillisToTimestamp Minute
    Month MonthName MonthsBetween MultiplyDTInterval MultiplyInterval MultiplyYMInterval NanosToTimestamp NextDay
    ParseToDate ParseToTimestamp PreciseTimestampConversion Quarter Second SecondWithFraction SecondsToTimestamp
    SubtractDates SubtractTimestamps TimeBucket TimestampAdd TimestampAddInterval TimestampAddYMInterval TimestampDiff
    ToUTCTimestamp ToUnixTimestamp TruncDate TruncTimestamp TryMakeInterval TryMakeTimestamp
    TryMakeTimestampFromDateTime UnixDate UnixMicros UnixMillis UnixNanos UnixSeconds UnixTimestamp WeekDay WeekOfYear
    Year YearOfWeek
""")

_COLLECTIONS = _words("""
    ArrayAggregate ArrayAppend ArrayBinarySearch ArrayCompact ArrayContains ArrayDistinct ArrayExcept ArrayExists
    ArrayFilter ArrayForAll ArrayInsert ArrayIntersect ArrayJoin ArrayMax ArrayMin ArrayPosition ArrayPrepend
    ArrayRemove ArrayRepeat ArraySize ArraySort ArrayTransform ArrayUnion ArraysOverlap ArraysZip Flatten MapConcat
    MapContainsKey MapEntries MapFilter MapFromArrays MapFromEntries MapKeys MapSort MapValues MapZipWith Sequence
    Size Slice SortArray TransformKeys TransformValues ZipWith VectorCosineSimilarity VectorInnerProduct
    VectorL2Distance VectorNorm VectorNormalize
""")

_FORMATS = _words("""
    CsvToStructs StructsToCsv SchemaOfCsv GetJsonObject MultiGetJsonObject JsonObjectKeys JsonToStructs StructsToJson
    LengthOfJsonArray SchemaOfJson XmlToStructs StructsToXml SchemaOfXml xml.XPathBoolean xml.XPathDouble
    xml.XPathFloat xml.XPathInt xml.XPathList xml.XPathLong xml.XPathShort xml.XPathString variant.IsValidVariant
    variant.IsVariantNull variant.ParseJson variant.SchemaOfVariant variant.ToVariantObject variant.VariantArrayAppend
    variant.VariantDelete variant.VariantGet variant.VariantInsert variant.VariantSet variant.VariantStripNulls
""")

_HASHES = _words("Murmur3Hash XxHash64 HiveHash Crc32 Md5 Sha1 Sha2 Hmac AesDecrypt TryAesDecrypt")

_GENERATORS = _words("Explode PosExplode Inline Stack JsonTuple GeneratorOuter variant.VariantExplode")

ROW_WISE = _STRUCTURE | _ARITHMETIC | _LOGIC | _STRINGS | _DATES | _COLLECTIONS | _FORMATS | _HASHES | _GENERATORS
"""Expressions whose value depends only on the row and on the recorded environment."""

USER_FUNCTIONS = _words("PythonUDF ScalaUDF ApplyFunctionExpression CallMethodViaReflection TryReflect")
"""Code of the user, which Spark does not know. It must be declared deterministic."""

NONDETERMINISTIC: dict[str, str] = {
    **dict.fromkeys(
        _words("CurrentTimestamp CurrentDate CurrentTime CurrentBatchTimestamp CurrentTimestampNanos Now "
               "LocalTimestamp LocalTimestampNanos"),
        "bl.now(), the step's recorded clock",
    ),
    **dict.fromkeys(_words("Rand Randn Uniform RandStr"), "bl.rand()"),
    "Shuffle": "F.array_sort(…) by a hash of bl.rand()",
    "Uuid": "bl.uuid()",
    "MonotonicallyIncreasingID": "bl.uuid(), or a column that identifies the row",
    "SparkPartitionID": "a column of the row: partitions differ from run to run",
    **dict.fromkeys(
        _words("InputFileName InputFileBlockStart InputFileBlockLength"), "a column that the source adds"
    ),
    **dict.fromkeys(
        _words("CurrentUser CurrentDatabase CurrentCatalog CurrentPath SparkVersion VariableReference"),
        "F.lit(…) with the value",
    ),
    "AesEncrypt": "a UDF that is given its initialisation vector",
}  # fmt: skip
"""Expressions whose value differs from run to run, each with its replacement."""

AGGREGATE = "group_by(…).agg(…) of the stream"

NOT_ROW_WISE_EXPRESSIONS: dict[str, str] = {
    **dict.fromkeys(
        _words(
            "WindowExpression RowNumber Rank DenseRank PercentRank CumeDist NTile Lag Lead NthValue CounterDiff EWM"
        ),
        AGGREGATE,
    ),
    "SessionWindow": AGGREGATE,
    **dict.fromkeys(
        _words("ScalarSubquery Exists InSubquery ListQuery LateralSubquery OuterReference DynamicPruningSubquery"),
        "a join with a static table",
    ),
}
"""Expressions over more than one row, each with its replacement; the package of aggregate functions tells them."""

NODES = _words("Project Filter Generate Expand SubqueryAlias View ResolvedHint Join Union")
"""Logical nodes that process each row on its own. `plan_check.py` has further rules for joins and unions."""

STATIC_LEAVES = _words("LocalRelation LogicalRDD LogicalRelation DataSourceV2Relation Range OneRowRelation")
"""The leaves of static tables."""

_DIVISION = "nothing: Boatlift divides the rows among tasks itself"

NOT_ROW_WISE_NODES: dict[str, tuple[str, str]] = {
    "Aggregate": ("an aggregate", AGGREGATE),
    "Window": ("a window function", AGGREGATE),
    **dict.fromkeys(_words("GlobalLimit LocalLimit Limit Tail Offset LimitAndOffset"), ("a limit", "a filter")),
    "Sort": ("a sort", "nothing: a stream has no order; sort where you read the sink"),
    **dict.fromkeys(
        _words("Distinct Deduplicate DeduplicateWithinWatermark"),
        ("a deduplication", "group_by(keys).agg(…, F.count('*')) of the stream"),
    ),
    "Sample": ("a sample", "a filter on bl.rand()"),
    **dict.fromkeys(_words("Repartition RepartitionByExpression RebalancePartitions"), ("a repartitioning", _DIVISION)),
    **dict.fromkeys(
        _words("Intersect Except"), ("a set operation", "a filter, or a semi or anti join with a static table")
    ),
    **dict.fromkeys(
        _words("MapInPandas MapInArrow MapPartitions MapPartitionsInR MapElements"),
        ("a function of whole partitions", "a scalar UDF, which sees each row for itself"),
    ),
    **dict.fromkeys(
        _words("FlatMapGroupsInPandas FlatMapGroupsInArrow FlatMapCoGroupsInPandas FlatMapCoGroupsInArrow"),
        ("a function of whole groups", AGGREGATE),
    ),
    **dict.fromkeys(
        _words("TransformWithState TransformWithStateInPySpark FlatMapGroupsWithState"), ("state", AGGREGATE)
    ),
    **dict.fromkeys(
        _words("EventTimeWatermark UpdateEventTimeWatermarkColumn"), ("a watermark", "nothing: leave it out")
    ),
    **dict.fromkeys(_words("LateralJoin AsOfJoin NearestByJoin"), ("a lateral join", "a join with a static table")),
    "CollectMetrics": ("an observation", "a sink, or group_by(…).agg(…)"),
    "Pivot": ("a pivot", AGGREGATE),
}
"""Logical nodes over more than one row, each in words and with its replacement."""
