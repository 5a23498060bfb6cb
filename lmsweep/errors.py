"""Errors that are meant for the user: one sentence, no traceback."""


class UserError(Exception):
    """Something only the user can put right; the message names the value, what is allowed and where."""


class ConfigError(UserError):
    """A configuration that cannot be run as it stands."""


class FinalError(UserError):
    """How a run ended, and would end again: training it once more is no use."""
