use std::io::{self, Write};

use bytes::Bytes;
use flate2::Compression;
use flate2::write::{GzEncoder, MultiGzDecoder};
use http::header::{self, HeaderMap};
use sandbar_wire::envd::HttpError;

/// How an answer is encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Encoding {
    Identity,
    Gzip,
}

/// Chooses by `Accept-Encoding`: gzip where it is wanted at least as much as the plain form.
pub(super) fn choose(headers: &HeaderMap) -> Result<Encoding, HttpError> {
    let values = headers.get_all(header::ACCEPT_ENCODING).iter().filter_map(|value| value.to_str().ok());
    let (mut gzip, mut identity, mut any) = (None, None, None);
    for item in values.flat_map(|value| value.split(',')) {
        let mut parts = item.split(';');
        let name = parts.next().unwrap_or_default().trim().to_ascii_lowercase();
        let weight =
            parts.find_map(|part| part.trim().strip_prefix("q=")?.parse::<f32>().ok()).unwrap_or(1.0);
        match name.as_str() {
            "gzip" | "x-gzip" => gzip = Some(weight),
            "identity" => identity = Some(weight),
            "*" => any = Some(weight),
            _ => {}
        }
    }
    let gzip_weight = gzip.or(any).unwrap_or(0.0);
    let identity_refused = identity.or(any) == Some(0.0);
    if gzip_weight > 0.0 && gzip_weight >= identity.unwrap_or(0.0) && gzip.is_some() {
        Ok(Encoding::Gzip)
    } else if !identity_refused {
        Ok(Encoding::Identity)
    } else if gzip_weight > 0.0 {
        Ok(Encoding::Gzip)
    } else {
        Err(HttpError::new(406, "no acceptable encoding; `identity` and `gzip` are available"))
    }
}

/// Compresses piece by piece, fast rather than small: the other end is near.
pub(super) struct Gzip(GzEncoder<Vec<u8>>);

impl Gzip {
    pub(super) fn new() -> Self {
        Self(GzEncoder::new(Vec::new(), Compression::fast()))
    }

    /// What is ready after that piece; may be empty.
    pub(super) fn piece(&mut self, bytes: &[u8]) -> io::Result<Bytes> {
        self.0.write_all(bytes)?;
        Ok(std::mem::take(self.0.get_mut()).into())
    }

    pub(super) fn finish(self) -> io::Result<Bytes> {
        Ok(self.0.finish()?.into())
    }
}

/// Decompresses piece by piece. A stream may have several members, as those of tools that work in parallel do.
pub(super) struct Gunzip(MultiGzDecoder<Vec<u8>>);

/// Largest piece that is decompressed at once. A small piece can grow a thousandfold, so input is cut.
pub(super) const GUNZIP_STEP: usize = 16 << 10;

impl Gunzip {
    pub(super) fn new() -> Self {
        Self(MultiGzDecoder::new(Vec::new()))
    }

    /// Decompresses a piece and passes what comes out to `sink`, in bounded pieces.
    pub(super) fn piece(
        &mut self,
        bytes: &[u8],
        mut sink: impl FnMut(&[u8]) -> io::Result<()>,
    ) -> io::Result<()> {
        for step in bytes.chunks(GUNZIP_STEP) {
            self.0.write_all(step)?;
            let out = self.0.get_mut();
            sink(out)?;
            out.clear();
        }
        Ok(())
    }

    /// The rest; an error where the stream is cut short.
    pub(super) fn finish(self) -> io::Result<Vec<u8>> {
        self.0.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_that_follow_one_another_are_one_stream_and_a_cut_one_is_none() {
        let member = |text: &[u8]| {
            let mut encoder = GzEncoder::new(Vec::new(), flate2::Compression::fast());
            encoder.write_all(text).unwrap();
            encoder.finish().unwrap()
        };
        let unpacked = |bytes: &[u8]| {
            let (mut gunzip, mut out) = (Gunzip::new(), Vec::new());
            gunzip.piece(bytes, |piece| {
                out.extend_from_slice(piece);
                Ok(())
            })?;
            out.extend(gunzip.finish()?);
            io::Result::Ok(out)
        };
        let both = [member(b"aaa"), member(b"bbb")].concat();
        assert_eq!(unpacked(&both).unwrap(), b"aaabbb");
        assert!(unpacked(&both[..both.len() - 3]).is_err());
    }

    #[test]
    fn encodings_are_negotiated() {
        let choose = |value: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::ACCEPT_ENCODING, value.parse().unwrap());
            choose(&headers)
        };
        assert_eq!(super::choose(&HeaderMap::new()).unwrap(), Encoding::Identity);
        assert_eq!(choose("gzip, deflate").unwrap(), Encoding::Gzip);
        assert_eq!(choose("identity").unwrap(), Encoding::Identity);
        assert_eq!(choose("gzip;q=0.5, identity").unwrap(), Encoding::Identity);
        assert_eq!(choose("gzip;q=0").unwrap(), Encoding::Identity);
        assert_eq!(choose("*").unwrap(), Encoding::Identity);
        assert_eq!(choose("identity;q=0, gzip").unwrap(), Encoding::Gzip);
        assert_eq!(choose("br, identity;q=0").unwrap_err().code, 406);
        assert_eq!(choose("*;q=0").unwrap_err().code, 406);
    }
}
