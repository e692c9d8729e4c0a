"""The helper's main loop: one connection, one installation, one thread for each request."""

import os
import sys
import threading

from . import verbs
from .errors import HelperError, translated
from .frames import CAP, ProtocolError, Reader, Writer
from .later import Later

traceback = Later("traceback")


class Call:
    """One request on its way: its arguments, whether it was cancelled, and a way to send events."""

    def __init__(self, number, verb, args, writer):
        self.number = number
        self.verb = verb
        self.args = args
        self.cancelled = threading.Event()
        self._writer = writer

    def event(self, payload, cap=CAP):
        self._writer.send({"id": self.number, "event": payload}, cap)

    def reply(self, result):
        self._writer.send({"id": self.number, "ok": True, "result": result})

    def fail(self, error):
        self._writer.send({"id": self.number, "ok": False, "error": error.as_dict()})


class Connection:
    """Reads requests until the input ends and answers each in its own thread."""

    def __init__(self, reader, writer, bundle):
        self._reader = reader
        self._writer = writer
        self._bundle = bundle
        self._session = None
        self._threaded = False
        self._calls = {}
        self._lock = threading.Lock()

    def serve(self):
        while True:
            message = self._reader.read()
            if message is None:
                return
            call = Call(message.get("id"), message.get("verb"), message.get("args") or {}, self._writer)
            if call.verb == "cancel":
                self._cancel(call)
            elif call.verb in ("hello", "provide"):
                # In this thread: whatever is sent right behind it must find what it brought.
                self._run(call, self._hello if call.verb == "hello" else self._provide)
            else:
                self._before_threads(call.verb)
                with self._lock:
                    self._calls[call.number] = call
                threading.Thread(target=self._run, args=(call, self._dispatch), daemon=True).start()

    def _before_threads(self, verb):
        """A connection that begins with watching or conversing starts nothing."""
        if not self._threaded and self._session is not None and verb not in ("watch", "converse"):
            self._session.make_nursery()
        self._threaded = True

    def _hello(self, call):
        self._session, result = verbs.hello(call.args, self._bundle)
        return result

    def _provide(self, call):
        return verbs.provide(self._greeted(), call.args)

    def _greeted(self):
        if self._session is None:
            raise HelperError("BAD_REQUEST", "The first request of a connection must be hello.")
        return self._session

    def _dispatch(self, call):
        session = self._greeted()
        function = verbs.find(call.verb)
        if function is None:
            raise HelperError("UNKNOWN_VERB", "This helper knows no verb %r." % call.verb)
        return function(session, call)

    def _cancel(self, call):
        with self._lock:
            other = self._calls.get(call.args.get("id"))
        if other is not None:
            other.cancelled.set()
        call.reply({"found": other is not None})

    def _run(self, call, function):
        try:
            self._answer(call, function)
        except HelperError as error:
            call.fail(error)
        finally:
            with self._lock:
                self._calls.pop(call.number, None)

    @staticmethod
    def _answer(call, function):
        try:
            result = function(call)
        except HelperError:
            raise
        except OSError as error:
            raise translated(error) from error
        except Exception as error:
            detail = {"traceback": traceback.format_exc()[-4000:]}
            raise HelperError("INTERNAL", "%s: %s" % (type(error).__name__, error), detail=detail) from error
        call.reply(result)


def private_pipes():
    """Moves stdin and stdout to descriptors of our own, so that nothing else can read or write frames."""
    inside, outside = os.dup(0), os.dup(1)
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(null, 1)
    os.close(null)
    return inside, outside


def main(nonce, bundle):
    inside, outside = private_pipes()
    connection = Connection(Reader(inside, nonce), Writer(outside, nonce), bundle)
    code = 0
    try:
        connection.serve()
    except ProtocolError as error:
        sys.stderr.write("pilothouse helper: %s\n" % error)
        code = 3
    except KeyboardInterrupt:
        code = 130
    # Threads may sit in a hanging system call; they must not keep this process.
    os._exit(code)
