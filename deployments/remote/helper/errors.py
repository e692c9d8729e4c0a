"""How a verb fails: a stable code, what happened, and what to do next."""


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
