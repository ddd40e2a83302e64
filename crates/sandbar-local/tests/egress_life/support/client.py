import errno, json, os, socket, ssl, sys, threading, time

LIMIT = 5


def why(error):
    if isinstance(error, socket.gaierror):
        return "no such name"
    if isinstance(error, TimeoutError):
        return "silence"
    return errno.errorcode.get(getattr(error, "errno", None), type(error).__name__)


def open_to(host, port, limit=LIMIT, secure=None):
    stream = socket.create_connection((host, port), limit)
    if secure:
        context = ssl._create_unverified_context()
        stream = context.wrap_socket(stream, server_hostname=secure)
    return stream


def ask(stream, path, name):
    stream.sendall(f"GET {path} HTTP/1.1\r\nHost: {name}\r\nConnection: close\r\n\r\n".encode())


def get(host, port=80, path="/", name=None, limit=LIMIT):
    """The status of an answer, or why there is none."""
    try:
        stream = open_to(host, port, limit, (name or host) if port == 443 else None)
        ask(stream, path, name or host)
        first = stream.recv(65536)
        return first.split(b" ")[1].decode() if first else "end"
    except OSError as error:
        return why(error)


def address(name):
    try:
        return socket.gethostbyname(name)
    except OSError as error:
        return why(error)


def echo(host, port, limit=2):
    """What comes back for a datagram, or why nothing does."""
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as datagrams:
            datagrams.settimeout(limit)
            datagrams.connect((host, port))
            datagrams.send(b"hello")
            return datagrams.recv(100).decode()
    except OSError as error:
        return why(error)


def download(host, port, name=None):
    """Says `begun` and then, once it is over, how and when that came."""
    stream = open_to(host, port, 60, (name or host) if port == 443 else None)
    ask(stream, "/drip?count=100000&ms=5", name or host)
    end = "end"
    try:
        if stream.recv(65536):
            print("begun", flush=True)
        while stream.recv(65536):
            pass
    except OSError as error:
        end = why(error)
    print(end, time.time(), flush=True)


def show(value):
    print(json.dumps(value), flush=True)
