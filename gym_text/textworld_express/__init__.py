"""The games of TextWorldExpress, run inside this process."""
