"""How a verb fails: a stable code, what happened, and what to do next."""

import errno

# No space, or no more of it for this user.
FULL = (errno.ENOSPC, errno.EDQUOT)


class HelperError(Exception):
    """A typed failure that travels to the panel.

    Args:
        code: One of the protocol's codes, such as FENCED or EXEC_FAILED.
        message: What happened, in one sentence, naming the path, port or id.
        remedy: What the operator should do next.
        detail: JSON-able evidence.
    """

    def __init__(self, code, message, remedy="", detail=None):
        super().__init__(message)
        self.code = code
        self.message = message
        self.remedy = remedy
        self.detail = detail or {}

    def as_dict(self):
        return {"code": self.code, "message": self.message, "remedy": self.remedy, "detail": self.detail}


def translated(error):
    """A typed error for a failed system call that no verb expected."""
    where = error.filename or "a file"
    if error.errno in FULL:
        remedy = "Free space (or quota) on that file system and try again."
        return HelperError("DISK_FULL", "No space left while writing %s." % where, remedy)
    if error.errno in (errno.EACCES, errno.EPERM):
        return HelperError("PERMISSION", "%s: permission denied." % where, "Check the login user's rights.")
    return HelperError("INTERNAL", "%s: %s" % (type(error).__name__, error))
