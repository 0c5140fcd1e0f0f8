"""What connectors share: columns, text, differences."""
