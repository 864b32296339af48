"""What keeps a report from being made."""


class ReportError(ValueError):
    """A folder or a file that a report cannot be made of; the text says what to do."""
