"""The one kind of error that is the user's to mend: it says what was given, expected, and what to do."""


class UserError(ValueError):
    """Something given to fairshot cannot be used; the message is complete without a traceback."""
