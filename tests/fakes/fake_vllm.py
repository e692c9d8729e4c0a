#!/usr/bin/env python3
"""An engine without a model: vLLM's command line, processes, log lines, endpoints and ways to fail, in plain Python.

    fake_vllm.py serve MODEL [--served-model-name N] [--host H] [--port P] [--headless] [--tensor-parallel-size T] ...

Faults come from FAKE_VLLM_MODE, a comma-separated list of: slow_start=SECONDS, swallow_term, exit_early=CODE, hang,
wipe_environ, health_lies, detach_worker, slow_metrics=SECONDS, no_chat_template. `exit_early` prints FAKE_VLLM_ERROR
when that is set.
"""

import argparse
import bisect
import ctypes
import http.server
import itertools
import json
import os
import signal
import sys
import threading
import time

VERSION = "0.33.0"


def modes():
    """{mode: value or None} of FAKE_VLLM_MODE."""
    words = [word.partition("=") for word in os.environ.get("FAKE_VLLM_MODE", "").split(",") if word]
    return {name.strip(): value or None for name, _, value in words}


def log(who, place, text):
    stamp = time.strftime("%m-%d %H:%M:%S")
    os.write(1, f"({who} pid={os.getpid()}) INFO {stamp} [{place}] {text}\n".encode())


def plain(text):
    os.write(1, (text + "\n").encode())


def wipe_environ():
    """Overwrites this process's environment block, as setproctitle does without SPT_NOENV."""
    with open("/proc/self/stat", "rb") as file:
        words = file.read().rpartition(b")")[2].split()
    # Fields 50 and 51 of stat: where the block lies. The words after the name begin with field 3.
    start, end = int(words[47]), int(words[48])
    os.environ.copy()
    ctypes.memset(start, 0, end - start)


def title(name):
    """Names the process for ps, in the kernel's 15 bytes."""
    ctypes.CDLL(None).prctl(15, name.encode(), 0, 0, 0)


def child(name, body):
    """Forks a child that runs `body` and never returns."""
    pid = os.fork()
    if pid == 0:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        title(name)
        try:
            body()
        finally:
            os._exit(0)
    return pid


def sleep_forever():
    while True:
        signal.pause()


class Engine:
    """The processes behind the API server."""

    def __init__(self, options, faults):
        self.options = options
        self.faults = faults
        self.children = []

    def start(self):
        inside, outside = os.pipe()
        if self.options.headless:
            self._workers()
        else:
            self.children.append(child("VLLM::EngineCore", lambda: self._core(outside)))
        if "detach_worker" in self.faults:
            self._detached()
        if not self.options.headless:
            os.read(inside, 1)

    def _core(self, ready):
        if "wipe_environ" in self.faults:
            wipe_environ()
        model = self.options.model
        log("EngineCore", "core.py:133", f"Initializing a V1 LLM engine (v{VERSION}) with config: model={model!r}")
        self._workers()
        log(
            "EngineCore", "kv_cache_utils.py:2327", "CPU KV cache size: 1,048,576 tokens, Maximum concurrency: 1024.00x"
        )
        log("EngineCore", "core.py:402", "init engine (profile, create kv cache, warmup model) took 0.02 s")
        os.write(ready, b"x")
        sleep_forever()

    def _workers(self):
        count = self.options.tensor_parallel_size
        for rank in range(count):
            name = f"VLLM::Worker_TP{rank}" if count > 1 else "VLLM::Worker"
            inside, outside = os.pipe()
            self.children.append(child(name, lambda rank=rank, out=outside: self._worker(rank, out)))
            os.read(inside, 1)

    def _worker(self, rank, ready):
        if "wipe_environ" in self.faults:
            wipe_environ()
        world = self.options.tensor_parallel_size * self.options.nnodes
        log("Worker", "parallel_state.py:1906", f"world_size={world} rank={rank} local_rank={rank} backend=gloo")
        assigned = "rank %d in world size %d is assigned as DP rank 0, PP rank 0, PCP rank 0, TP rank %d, ETP rank 0"
        log("Worker", "parallel_state.py:2350", assigned % (rank, world, rank) + ", EP rank N/A, EPLB rank N/A")
        log("Worker", "cpu_model_runner.py:68", f"Starting to load model {self.options.model}...")
        plain("Loading safetensors checkpoint shards:   0% Completed | 0/1 [00:00<?, ?it/s]")
        plain("Loading safetensors checkpoint shards: 100% Completed | 1/1 [00:00<00:00, 145.06it/s]")
        log("Worker", "default_loader.py:501", "Loading weights took 0.01 seconds")
        log("Worker", "cpu_worker.py:260", "Explicitly set (1.0/13.46) GiB for KV cache on node 0.")
        os.write(ready, b"x")
        sleep_forever()

    def _detached(self):
        """A worker that leaves: double fork, a session of its own, no environment left to read."""
        inside, outside = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.setsid()
            if os.fork() == 0:
                title("VLLM::Detached")
                signal.signal(signal.SIGTERM, signal.SIG_IGN)
                wipe_environ()
                os.write(outside, b"x")
                sleep_forever()
            os._exit(0)
        os.waitpid(pid, 0)
        os.read(inside, 1)

    def stop(self):
        for pid in self.children:
            try:
                os.kill(pid, signal.SIGTERM)
                os.waitpid(pid, 0)
            except OSError:
                pass


class Meters:
    """What the engine counts, under the names of vLLM; requests move it by `began`, `said` and `ended`."""

    BOUNDS = {
        "time_to_first_token_seconds": (0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0),
        "inter_token_latency_seconds": (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5),
        "e2e_request_latency_seconds": (0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 60.0),
    }

    def __init__(self):
        self.lock = threading.Lock()
        self.running = self.prompt = self.generated = 0
        self.ended_by = dict.fromkeys(("stop", "length", "abort", "error", "repetition"), 0)
        # Each has one count more than it has bounds, and the sum of what was seen.
        self.seen = {name: [[0] * (len(bounds) + 1), 0.0] for name, bounds in self.BOUNDS.items()}

    def began(self, prompt_tokens):
        with self.lock:
            self.running += 1
            self.prompt += prompt_tokens

    def said(self, seconds, first):
        """One token, `seconds` after the one before; the first after the request came."""
        with self.lock:
            self.generated += 1
            self._see("time_to_first_token_seconds" if first else "inter_token_latency_seconds", seconds)

    def ended(self, reason, seconds):
        with self.lock:
            self.running -= 1
            self.ended_by[reason] += 1
            self._see("e2e_request_latency_seconds", seconds)

    def _see(self, name, seconds):
        self.seen[name][0][bisect.bisect_left(self.BOUNDS[name], seconds)] += 1
        self.seen[name][1] += seconds

    def text(self, model):
        """The answer of /metrics."""
        labels = f'engine="0",model_name="{model}"'
        rows = [
            ("num_requests_running", "gauge", self.running),
            ("num_requests_waiting", "gauge", 0),
            ("kv_cache_usage_perc", "gauge", min(1.0, self.running / 64)),
            ("num_preemptions_total", "counter", 0),
            ("prefix_cache_queries_total", "counter", self.prompt),
            ("prefix_cache_hits_total", "counter", self.prompt // 2),
            ("prompt_tokens_total", "counter", self.prompt),
            ("generation_tokens_total", "counter", self.generated),
        ]
        ends = [(f',finished_reason="{reason}"', count) for reason, count in self.ended_by.items()]
        lines = [f"# TYPE vllm:{name} {kind}\nvllm:{name}{{{labels}}} {float(value)}" for name, kind, value in rows]
        lines += ["# TYPE vllm:request_success_total counter"]
        lines += [f"vllm:request_success_total{{{labels}{reason}}} {count}.0" for reason, count in ends]
        for name, (counts, total) in self.seen.items():
            steps = zip((*self.BOUNDS[name], "+Inf"), itertools.accumulate(counts))  # noqa: B905 (also for Python 3.8)
            lines += [f"# TYPE vllm:{name} histogram"]
            lines += [f'vllm:{name}_bucket{{{labels},le="{bound}"}} {count}.0' for bound, count in steps]
            lines += [f"vllm:{name}_count{{{labels}}} {sum(counts)}.0", f"vllm:{name}_sum{{{labels}}} {total}"]
        return "\n".join([*lines, ""])


METERS = Meters()


class Answers(http.server.BaseHTTPRequestHandler):
    """The endpoints; only /v1 asks for the key, like the real one."""

    protocol_version = "HTTP/1.1"
    name = ""
    faults = {}

    def log_message(self, format, *args):
        plain(f"INFO:     {self.client_address[0]}:{self.client_address[1]} - {format % args}")

    def do_GET(self):
        if "hang" in self.faults:
            time.sleep(3600)
        if self.path in ("/health", "/ping"):
            self._say(200, "")
        elif self.path == "/version":
            self._say(200, {"version": VERSION})
        elif self.path == "/metrics":
            time.sleep(float(self.faults.get("slow_metrics") or 0))
            self._say(200, METERS.text(self.name))
        elif self.path.startswith("/fake/"):
            import fake_stream

            self._say(200, fake_stream.control(self.path))
        elif self.path == "/v1/models" and self._allowed():
            self._say(200, {"object": "list", "data": [{"id": self.name, "object": "model", "owned_by": "vllm"}]})
        elif not self.path.startswith("/v1/models"):
            self._say(404, {"detail": "Not Found"})

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if self.path not in ("/v1/completions", "/v1/chat/completions"):
            self._say(404, {"detail": "Not Found"})
        elif self._allowed():
            self._complete(json.loads(body or b"{}"))

    def _complete(self, wish):
        if "health_lies" in self.faults:
            self._say(500, {"error": {"message": "EngineCore encountered an issue.", "type": "InternalServerError"}})
            return
        if wish.get("model") not in (None, self.name):
            message = "The model `{}` does not exist.".format(wish["model"])
            self._say(404, {"error": {"message": message, "type": "NotFoundError", "code": 404}})
            return
        if wish.get("stream"):
            import fake_stream  # beside this file

            fake_stream.answer(self, wish, METERS, self.faults)
            return
        count = int(wish.get("max_tokens") or 16)
        METERS.began(5)
        for place in range(count):
            METERS.said(0.03 if place == 0 else 0.012, first=place == 0)
        METERS.ended("length", 0.03 + 0.012 * (count - 1))
        usage = {"prompt_tokens": 5, "completion_tokens": count, "total_tokens": 5 + count}
        if self.path.endswith("/chat/completions"):
            choice = {
                "index": 0,
                "message": {"role": "assistant", "content": " word" * count},
                "finish_reason": "length",
            }
        else:
            choice = {"index": 0, "text": " word" * count, "finish_reason": "length"}
        self._say(200, {"id": "cmpl-fake", "model": self.name, "choices": [choice], "usage": usage})

    def _allowed(self):
        key = os.environ.get("VLLM_API_KEY")
        if key and self.headers.get("Authorization") != "Bearer " + key:
            self._say(401, {"error": "Unauthorized"})
            return False
        return True

    def _say(self, status, value):
        data = value.encode() if isinstance(value, str) else json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "text/plain" if isinstance(value, str) else "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    allow_reuse_address = True


def parse(argv):
    parser = argparse.ArgumentParser(prog="vllm", allow_abbrev=False)
    parser.add_argument("command", choices=["serve"])
    parser.add_argument("model")
    parser.add_argument("--served-model-name")
    parser.add_argument("--host", default="0.0.0.0")
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--headless", action="store_true")
    parser.add_argument("--tensor-parallel-size", "-tp", type=int, default=1)
    parser.add_argument("--nnodes", type=int, default=1)
    options, rest = parser.parse_known_args(argv)
    if "--no-such-flag" in rest:
        parser.error("unrecognized arguments: " + " ".join(rest))
    return options


def leave_early(faults):
    default = "ValueError: the fake engine was told to fail"
    plain("Traceback (most recent call last):\n  ...\n" + os.environ.get("FAKE_VLLM_ERROR", default))
    plain(
        "RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {'EngineCore': 1}"
    )
    sys.exit(int(faults["exit_early"] or 1))


def serve(options, engine, faults):
    Answers.name = options.served_model_name or options.model
    Answers.faults = faults
    server = Server((options.host, options.port), Answers)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
    log("APIServer", "entry.py:136", "Supported tasks: ['generate']")
    log("APIServer", "entry.py:140", f"Starting vLLM server on http://{options.host}:{options.port}")
    plain(f"INFO:     Started server process [{os.getpid()}]")
    plain("INFO:     Waiting for application startup.")
    plain("INFO:     Application startup complete.")


def main():
    faults = modes()
    options = parse(sys.argv[1:])
    engine = Engine(options, faults)
    stopping = threading.Event()
    ignore = "swallow_term" in faults
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN if ignore else lambda *_: stopping.set())
    log("APIServer", "api_utils.py:286", f"non-default args: {vars(options)}")
    if faults.get("slow_start"):
        stopping.wait(float(faults["slow_start"]))
    if "exit_early" in faults:
        leave_early(faults)
    log("APIServer", "model.py:733", "Resolved architecture: Qwen2ForCausalLM")
    log("APIServer", "model.py:2152", "Using max model len 1024")
    engine.start()
    if "wipe_environ" in faults:
        wipe_environ()
    if not options.headless:
        serve(options, engine, faults)
    stopping.wait()
    log("APIServer", "launcher.py:120", "[shutdown] API server: shutdown triggered")
    engine.stop()


if __name__ == "__main__":
    main()
