//! Frames: a `u32` length, little-endian, and that many bytes. A length above the bound is refused
//! before anything is allocated.

use std::io::{self, Read, Write};

/// Maximum bytes of contents (file data, batched items) that a sender puts into one message.
pub const PAYLOAD_BYTES_MAX: usize = 1 << 20;

/// Maximum bytes of a frame: the payload, and space for the other fields.
pub const FRAME_BYTES_MAX: usize = PAYLOAD_BYTES_MAX + (128 << 10);

/// A frame that could not be read.
#[derive(Debug, thiserror::Error)]
pub enum FrameError {
    /// The other side closed the connection between two frames.
    #[error("the connection was closed")]
    Closed,
    /// The length is above the bound.
    #[error("a frame of {0} bytes, above the bound of {FRAME_BYTES_MAX}")]
    TooLong(usize),
    /// The socket failed, or closed within a frame.
    #[error("the connection broke: {0}")]
    Broken(#[from] io::Error),
}

impl FrameError {
    /// Whether the other side closed the connection, in any way.
    pub fn is_gone(&self) -> bool {
        match self {
            FrameError::Closed => true,
            FrameError::TooLong(_) => false,
            FrameError::Broken(error) => matches!(
                error.kind(),
                io::ErrorKind::UnexpectedEof
                    | io::ErrorKind::ConnectionReset
                    | io::ErrorKind::ConnectionAborted
                    | io::ErrorKind::BrokenPipe
            ),
        }
    }
}

/// Reads one frame into `buffer`, whose former contents are replaced. After an error it has any
/// contents.
pub fn read_frame(from: &mut impl Read, buffer: &mut Vec<u8>) -> Result<(), FrameError> {
    let mut header = [0; 4];
    let mut filled = 0;
    while let Some(rest) = header.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        match from.read(rest) {
            Ok(0) if filled == 0 => return Err(FrameError::Closed),
            Ok(0) => return Err(FrameError::Broken(io::ErrorKind::UnexpectedEof.into())),
            Ok(n) => filled += n,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error.into()),
        }
    }
    let length = u32::from_le_bytes(header) as usize;
    if length > FRAME_BYTES_MAX {
        return Err(FrameError::TooLong(length));
    }
    // What was there is overwritten, and not cleared before.
    buffer.resize(length, 0);
    from.read_exact(buffer)?;
    Ok(())
}

/// Writes one frame. `message` is what follows the length; one that is too long is `InvalidData`,
/// and nothing of it is written.
pub fn write_frame(to: &mut impl Write, message: &[u8]) -> io::Result<()> {
    if message.len() > FRAME_BYTES_MAX {
        // Caused by long paths, which other users may create: only the connection ends.
        let text = format!("a message of {} bytes", message.len());
        return Err(io::Error::new(io::ErrorKind::InvalidData, text));
    }
    to.write_all(&(message.len() as u32).to_le_bytes())?;
    to.write_all(message)
}
