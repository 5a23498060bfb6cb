"""Errors that are meant for the user: one sentence, no traceback."""


class UserError(Exception):
    """Something only the user can put right; the message names the value, what is allowed and where."""


class ConfigError(UserError):
    """A configuration that cannot be run as it stands."""


class GivenBackError(UserError):
    """The work cannot go on here, and the job is not to blame: it is given back and goes on later."""


class PausedError(GivenBackError):
    """A run came as far as was asked for; its checkpoint waits for whoever asks for more."""


class FinalError(UserError):
    """The run would end like this again, so that training it once more is of no use."""
