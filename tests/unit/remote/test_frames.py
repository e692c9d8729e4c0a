"""The codec against hostile bytes, cut into pieces anywhere."""

from __future__ import annotations

import contextlib
import gc
import itertools
import json

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from deployments.remote.frames import (
    KEPT_NOISE_BYTES,
    MAX_NOISE_BYTES,
    MAX_PAYLOAD_BYTES,
    MAX_REPORT_BYTES,
    FrameDecoder,
    GreetingFinder,
    encode,
)
from deployments.remote.launcher import HelperFailed

NONCE = "0123456789abcdef0123456789abcdef"
OTHER = "f" * 32
BOOT = b"\nPHBOOT " + NONCE.encode() + b" 3.11.2\n"

# NUL is the one letter that does not come through as it was.
texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"))
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=20,
)
messages = st.builds(lambda number, body: {"id": number, "args": body}, st.integers(0, 2**31), json_values)
lookalikes = st.sampled_from(
    [
        b"\nPHBOOT " + OTHER.encode() + b" 3.11.2\n",
        b"PHBOOT " + OTHER.encode() + b" 3.11.2",
        b"\nPHBOOT " + NONCE[:31].encode() + b" 3.11.2\n",
        b"\nPHFAIL " + OTHER.encode() + b" INTERPRETER_MISSING x\n",
        b"\nPHBOOT ",
        b"\n",
        f"PHF1 {OTHER} 00000002\n{{}}\n".encode(),
    ]
)


def pieces(data: bytes, cuts: list[int]) -> list[bytes]:
    places = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    return [data[start:end] for start, end in itertools.pairwise(places)]


def find(chunks):
    finder = GreetingFinder(NONCE)
    for chunk in chunks:
        if greeting := finder.feed(chunk):
            return greeting
    return None


def decode(chunks):
    decoder = FrameDecoder(NONCE)
    return [message for chunk in chunks for message in decoder.feed(chunk)]


@given(st.lists(st.binary(max_size=200) | lookalikes, max_size=8), st.lists(st.integers(0), max_size=6))
def test_the_greeting_is_found_behind_any_noise_however_it_is_cut(noise, cuts):
    noise = b"".join(noise)
    assume(NONCE.encode() not in noise)
    greeting = find(pieces(noise + BOOT, cuts))
    assert greeting is not None
    assert (greeting.ok, greeting.words) == (True, "3.11.2")


@given(st.binary(max_size=2000))
def test_bytes_without_the_nonce_are_never_a_greeting(noise):
    assert find([noise]) is None


def test_the_greeting_keeps_what_came_before_and_after():
    greeting = find([b"Welcome\x1b[0m\nto gpu-a" + BOOT + b"PHF1"])
    assert greeting.noise == "Welcome\N{REPLACEMENT CHARACTER}[0m\nto gpu-a"
    assert greeting.rest == b"PHF1"


def test_a_failed_start_carries_its_code_and_words():
    greeting = find([b"\nPHFAIL " + NONCE.encode() + b" INTERPRETER_MISSING /opt/py\n"])
    assert (greeting.ok, greeting.words) == (False, "INTERPRETER_MISSING /opt/py")


def test_noise_may_be_256_kib_and_no_more():
    assert find([b"x" * MAX_NOISE_BYTES, BOOT]) is not None
    with pytest.raises(HelperFailed) as caught:
        find([b"x" * (MAX_NOISE_BYTES + 1), BOOT])
    assert caught.value.code == "PROTOCOL"
    assert len(caught.value.detail["noise"]) == KEPT_NOISE_BYTES


def test_endless_noise_is_given_up():
    with pytest.raises(HelperFailed, match="256 KiB"):
        find([b"y\n" * 1000] * 1000)


@given(st.lists(messages, max_size=5), st.lists(st.integers(0), max_size=8))
def test_messages_come_out_as_they_went_in_however_they_are_cut(sent, cuts):
    data = b"".join(encode(NONCE, message) for message in sent)
    assert decode(pieces(data, cuts)) == sent


@given(st.lists(messages, min_size=1, max_size=3), st.integers(0))
def test_a_truncated_stream_gives_only_whole_messages(sent, cut):
    data = b"".join(encode(NONCE, message) for message in sent)
    got = decode([data[: cut % len(data)]])
    assert got == sent[: len(got)]
    assert len(got) < len(sent)


@given(st.binary(min_size=1, max_size=300))
def test_garbage_is_refused_or_waits_for_more_and_is_never_a_message(data):
    messages = []
    with contextlib.suppress(HelperFailed):
        messages = decode([data])
    assert messages == []


@given(st.lists(messages, max_size=3), st.binary(min_size=1, max_size=60))
def test_a_byte_between_frames_is_refused(sent, junk):
    data = b"".join(encode(NONCE, message) for message in sent)
    if not junk.startswith(b"P"):
        with pytest.raises(HelperFailed):
            decode([data + junk])


FORGED = {
    "another nonce": encode(OTHER, {"id": 1}),
    "a log line": b"INFO 12-01 12:00:00 loading weights\n",
    "another version": encode(NONCE, {"id": 1}).replace(b"PHF1", b"PHF2", 1),
    "a length in capitals": f"PHF1 {NONCE} 0000000A\n".encode() + b"x" * 11,
    "a negative length": f"PHF1 {NONCE} -0000001\n".encode(),
    "a length with spaces": f"PHF1 {NONCE}        2\n{{}}\n".encode(),
    "a length that is too short": f"PHF1 {NONCE} 00000002\n".encode() + b'{"id": 1}\n',
    "a length beyond the cap": f"PHF1 {NONCE} {MAX_PAYLOAD_BYTES + 1:08x}\n".encode(),
    "the largest length": f"PHF1 {NONCE} ffffffff\n".encode(),
    "no object": f"PHF1 {NONCE} 00000002\n[]\n".encode(),
    "no json": f"PHF1 {NONCE} 00000002\n{{]\n".encode(),
    "no utf-8": f"PHF1 {NONCE} 00000002\n".encode() + b"\xff\xfe\n",
    "no id": encode(NONCE, {"ok": True}),
    "an id that is true": encode(NONCE, {"id": True, "ok": True}),
    "an id that is text": encode(NONCE, {"id": "1", "ok": True}),
    "a bomb of brackets": f"PHF1 {NONCE} {400000:08x}\n".encode() + b"[" * 400000 + b"\n",
}


@pytest.mark.parametrize("forged", FORGED.values(), ids=FORGED.keys())
def test_a_forged_frame_is_refused(forged):
    with pytest.raises(HelperFailed) as caught:
        decode([forged])
    assert caught.value.code == "PROTOCOL"


def test_a_wrong_start_is_refused_before_a_whole_header_came():
    with pytest.raises(HelperFailed):
        decode([b"b"])


def test_a_payload_of_eight_mib_fits_and_a_larger_one_is_refused_at_the_sender():
    overhead = len(json.dumps({"id": 1, "x": ""}, separators=(",", ":")))
    largest = {"id": 1, "x": "a" * (MAX_PAYLOAD_BYTES - overhead)}
    assert decode([encode(NONCE, largest)]) == [largest]
    with pytest.raises(HelperFailed, match="8 MiB"):
        encode(NONCE, {"id": 1, "x": largest["x"] + "a"})


def test_a_file_name_that_is_not_utf8_does_not_break_the_connection():
    payload = b'{"id":1,"ok":true,"result":{"name":"caf\\udce9","nan":NaN}}'
    frame = b"PHF1 " + NONCE.encode() + b" %08x\n" % len(payload) + payload + b"\n"
    assert decode([frame]) == [{"id": 1, "ok": True, "result": {"name": "caf?", "nan": None}}]


def frame(payload: bytes) -> bytes:
    return b"PHF1 " + NONCE.encode() + b" %08x\n" % len(payload) + payload + b"\n"


@pytest.mark.parametrize("number", [b"NaN", b"Infinity", b"-Infinity", b"1e999", b"-1e999", b"[1e400]"])
def test_a_number_that_is_none_becomes_null_because_nothing_else_can_store_it(number):
    (message,) = decode([frame(b'{"id":1,"result":' + number + b"}")])
    assert message["result"] in (None, [None])


def test_a_huge_whole_number_keeps_its_digits_and_an_absurd_one_is_refused():
    assert decode([frame(b'{"id":1,"n":' + b"9" * 40 + b"}")]) == [{"id": 1, "n": int("9" * 40)}]
    with pytest.raises(HelperFailed) as caught:
        decode([frame(b'{"id":1,"n":' + b"9" * 5000 + b"}")])
    assert caught.value.code == "PROTOCOL"


def test_a_connection_for_reports_refuses_what_is_larger_than_any_report():
    decoder = FrameDecoder(NONCE, MAX_REPORT_BYTES)
    with pytest.raises(HelperFailed, match="4 MiB is the most"):
        decoder.feed(f"PHF1 {NONCE} {MAX_REPORT_BYTES + 1:08x}\n".encode())


@pytest.mark.parametrize("payload", [b'{"id":1,"x":[' + b"[]," * 200_000 + b"[]]}", b'{"id":1,' + b"[" * 300_000])
def test_millions_of_lists_leave_the_collector_as_it_was(payload):
    assert gc.isenabled()
    with contextlib.suppress(HelperFailed):
        assert len(decode([frame(payload)])[0]["x"]) == 200_001
    assert gc.isenabled()


def test_nul_is_replaced_because_no_database_text_can_hold_it():
    payload = json.dumps({"id": 1, "result": {"log\x00": ["a\x00b", "\\u0000 in words"]}}).encode()
    frame = f"PHF1 {NONCE} {len(payload):08x}\n".encode() + payload + b"\n"
    assert decode([frame]) == [{"id": 1, "result": {"log\ufffd": ["a\ufffdb", "\\u0000 in words"]}}]
