"""A request to an object server with a key that clients would change, such as one that ends in a slash."""

from __future__ import annotations

import hashlib
import hmac
import http.client
import os
from datetime import UTC, datetime


def put(bucket: str, key: str, content: bytes = b"") -> None:
    """PUT an object under exactly this key, which has no characters to be quoted, signed by version 4 of AWS."""
    host = os.environ["AWS_ENDPOINT_URL"].removeprefix("http://")
    at = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    scope = f"{at[:8]}/{os.environ['AWS_REGION']}/s3/aws4_request"
    digest = hashlib.sha256(content).hexdigest()
    headers = {"host": host, "x-amz-content-sha256": digest, "x-amz-date": at}
    names = ";".join(headers)
    lines = "".join(f"{name}:{value}\n" for name, value in headers.items())
    request = hashlib.sha256(f"PUT\n/{bucket}/{key}\n\n{lines}\n{names}\n{digest}".encode()).hexdigest()
    sign = f"AWS4{os.environ['AWS_SECRET_ACCESS_KEY']}".encode()
    for part in (*scope.split("/"), f"AWS4-HMAC-SHA256\n{at}\n{scope}\n{request}"):
        sign = hmac.digest(sign, part.encode(), "sha256")
    credential = f"Credential={os.environ['AWS_ACCESS_KEY_ID']}/{scope}"
    headers["authorization"] = f"AWS4-HMAC-SHA256 {credential}, SignedHeaders={names}, Signature={sign.hex()}"
    connection = http.client.HTTPConnection(host)
    connection.request("PUT", f"/{bucket}/{key}", content, headers)
    answer = connection.getresponse()
    assert answer.status == 200, answer.read()
    connection.close()
