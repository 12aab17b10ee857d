//! Heads of frames, frames that are too long, and the words of a failure.

use std::io::ErrorKind;

use inode::{FsError, IoFailure};
use wire::remote::{HEAD_BYTES, put_head, split_head};
use wire::{FRAME_BYTES_MAX, Failure, FailureKind, os_words, write_frame};

#[test]
fn failures_of_the_environment_are_no_damage() {
    let environment = FsError::Io(IoFailure::environment("too many open files".to_owned()));
    assert_eq!(FailureKind::from(&environment), FailureKind::Other);
    assert_eq!(FailureKind::from(&FsError::Io("a".to_owned().into())), FailureKind::Damaged);
}

#[test]
fn numbers_of_os_errors_are_left_out_and_nothing_else() {
    let missing = std::io::Error::from_raw_os_error(2);
    let failure = Failure::new(FailureKind::Other, format!("read /a: {missing}: then"));
    assert_eq!(failure.message, "read /a: No such file or directory: then");
    assert!(!os_words(format!("{missing}; {missing}")).contains("os error"));
    for kept in ["a (os error x)", "a (os error 2", "a (os error )", "(os error 2)", ""] {
        assert_eq!(os_words(kept.to_owned()), kept);
    }
}

#[test]
fn a_head_is_read_as_it_was_written_and_nothing_else_is() {
    let mut kinds = 0;
    for byte in 0..=255 {
        let given = [&[byte][..], &7_u64.to_le_bytes()].concat();
        let Some((kind, 7, [])) = split_head(&given) else { continue };
        kinds += 1;
        let mut frame = Vec::new();
        put_head(kind, u64::MAX - 5, &mut frame);
        assert_eq!((frame.len(), frame[0]), (HEAD_BYTES, byte));
        frame.push(7);
        assert_eq!(split_head(&frame), Some((kind, u64::MAX - 5, &[7][..])));
        assert_eq!(split_head(&frame[..8]), None);
    }
    assert_eq!(kinds, 12);
    assert_eq!(split_head(&[0; 9]), None);
    assert_eq!(split_head(&[200; 9]), None);
}

#[test]
fn a_message_that_is_too_long_is_refused_and_ends_nothing() {
    let mut out = Vec::new();
    let refused = write_frame(&mut out, &vec![0; FRAME_BYTES_MAX + 1]);
    assert_eq!(refused.map_err(|error| error.kind()), Err(ErrorKind::InvalidData));
    assert!(out.is_empty());
    write_frame(&mut out, &vec![0; FRAME_BYTES_MAX]).expect("space");
}
