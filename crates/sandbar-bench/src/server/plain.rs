//! The plainest client and server of large bodies that there are: blocking reads and writes, one thread each.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Bytes that are read and written at once.
const PIECE: usize = 256 << 10;
/// Longest silence.
const SILENCE: Duration = Duration::from_secs(60);

/// Sends a request with a body of so many bytes and answers millions of bytes a second, until the answer is there.
pub(super) fn upload(
    address: SocketAddr,
    target: &str,
    headers: &[(&str, &str)],
    bytes: u64,
) -> Result<f64, String> {
    let begun = Instant::now();
    let send = || -> io::Result<String> {
        let mut stream = connect(address)?;
        let length = bytes.to_string();
        let headers = [headers, &[("content-length", &length)]].concat();
        stream.write_all(head("POST", target, &headers).as_bytes())?;
        let piece = vec![b'x'; PIECE];
        let mut left = bytes;
        while left > 0 {
            let size = piece.len().min(usize::try_from(left).unwrap_or(usize::MAX));
            stream.write_all(&piece[..size])?;
            left -= size as u64;
        }
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    };
    let answer = send().map_err(|why| why.to_string())?;
    let took = begun.elapsed();
    if answer.starts_with("HTTP/1.1 200") {
        Ok(rate(bytes, took))
    } else {
        Err(format!("the answer: {answer}"))
    }
}

/// Asks for a body of so many bytes and answers millions of bytes a second.
pub(super) fn download(
    address: SocketAddr,
    target: &str,
    headers: &[(&str, &str)],
    bytes: u64,
) -> Result<f64, String> {
    let begun = Instant::now();
    let mut got = Vec::new();
    let receive = |start: &mut Vec<u8>| -> io::Result<u64> {
        let mut stream = connect(address)?;
        stream.write_all(head("GET", target, headers).as_bytes())?;
        let mut piece = vec![0; PIECE];
        let mut sum = 0;
        loop {
            match stream.read(&mut piece)? {
                0 => return Ok(sum),
                size => {
                    if sum == 0 {
                        start.extend_from_slice(&piece[..size.min(1024)]);
                    }
                    sum += size as u64;
                }
            }
        }
    };
    let sum = receive(&mut got).map_err(|why| why.to_string())?;
    let took = begun.elapsed();
    let start = String::from_utf8_lossy(&got);
    if start.starts_with("HTTP/1.1 200") && sum > bytes {
        return Ok(rate(bytes, took));
    }
    Err(format!("{sum} bytes came that begin with `{}`", start.lines().next().unwrap_or_default()))
}

/// Answers requests of the two kinds on a thread of its own, one after another: an upload ends in a file at `path`, a download is what it has. It
/// ends with the process.
pub(super) fn serve(path: PathBuf) -> Result<SocketAddr, String> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(|why| why.to_string())?;
    let address = listener.local_addr().map_err(|why| why.to_string())?;
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            if let Err(why) = answer(stream, &path) {
                eprintln!("sandbar-bench: the plain server: {why}");
            }
        }
    });
    Ok(address)
}

fn answer(mut stream: TcpStream, path: &PathBuf) -> io::Result<()> {
    let mut piece = vec![0; PIECE];
    let (mut request, mut end) = (Vec::new(), None);
    while end.is_none() {
        let size = stream.read(&mut piece)?;
        if size == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        request.extend_from_slice(&piece[..size]);
        end = request.windows(4).position(|bytes| bytes == b"\r\n\r\n").map(|at| at + 4);
    }
    let (head, rest) = request.split_at(end.unwrap_or_default());
    let head = String::from_utf8_lossy(head);
    if head.starts_with("GET") {
        let mut file = std::fs::File::open(path)?;
        let length = file.metadata()?.len();
        stream.write_all(format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n").as_bytes())?;
        return pass(&mut file, &mut stream, &mut piece, length);
    }
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
    let length = length.and_then(|length| length.parse::<u64>().ok()).ok_or(io::ErrorKind::InvalidData)?;
    let mut file = std::fs::File::create(path)?;
    file.write_all(rest)?;
    pass(&mut stream, &mut file, &mut piece, length - rest.len() as u64)?;
    stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")
}

/// Passes connections on, each way by a thread of its own: what any proxy has to do at least. It ends with the process.
pub(super) fn relay(to: SocketAddr) -> Result<SocketAddr, String> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(|why| why.to_string())?;
    let address = listener.local_addr().map_err(|why| why.to_string())?;
    std::thread::spawn(move || {
        for near in listener.incoming().flatten() {
            let ways = connect(to).and_then(|far| Ok([(near.try_clone()?, far.try_clone()?), (far, near)]));
            match ways {
                Ok(ways) => ways.into_iter().for_each(|(from, to)| {
                    std::thread::spawn(move || one_way(from, to));
                }),
                Err(why) => eprintln!("sandbar-bench: the plain relay: {why}"),
            }
        }
    });
    Ok(address)
}

/// To the end of one side, which is passed on; what breaks is the client's to tell.
fn one_way(mut from: TcpStream, mut to: TcpStream) {
    let mut piece = vec![0; PIECE];
    while let Ok(size) = from.read(&mut piece) {
        if size == 0 || to.write_all(&piece[..size]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Write);
}

fn pass(from: &mut impl Read, to: &mut impl Write, piece: &mut [u8], mut left: u64) -> io::Result<()> {
    while left > 0 {
        let size = from.read(piece)?;
        if size == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        to.write_all(&piece[..size])?;
        left = left.saturating_sub(size as u64);
    }
    Ok(())
}

fn connect(address: SocketAddr) -> io::Result<TcpStream> {
    let stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(SILENCE))?;
    stream.set_write_timeout(Some(SILENCE))?;
    Ok(stream)
}

fn head(method: &str, target: &str, headers: &[(&str, &str)]) -> String {
    let mut head = format!("{method} {target} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n");
    for (name, value) in headers {
        head.extend([name, ": ", value, "\r\n"]);
    }
    head + "\r\n"
}

#[expect(clippy::cast_precision_loss, reason = "far below the exact range")]
fn rate(bytes: u64, took: Duration) -> f64 {
    bytes as f64 / took.as_secs_f64() / 1e6
}
