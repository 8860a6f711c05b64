"""From a name to rows, splits and features."""
