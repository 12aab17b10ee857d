//! What is encoded decodes to the same; frames keep their bounds.

use std::io::Cursor;

use wire::{
    Body, Bytes, Call, DecodeError, FRAME_BYTES_MAX, Failure, FailureKind, FrameError, ImportAttr,
    Item, Items, Reply, Request, decode, encode, read_frame, write_frame,
};

#[test]
fn requests_round_trip() {
    let calls = [
        Call::Status,
        Call::List { path: b"/a\xff", recursive: true },
        Call::SnapshotRename { path: b"/", from: b"a", to: b"b" },
        Call::Import { items: b"items" },
        Call::ClusterLimits { directories: Some(1), inodes: None },
    ];
    for call in calls {
        let request = Request { id: 7, call };
        let mut bytes = Vec::new();
        encode(&request, &mut bytes);
        assert_eq!(decode::<Request<'_>>(&bytes), Ok(request.clone()));
        bytes.push(0);
        assert_eq!(decode::<Request<'_>>(&bytes), Err(DecodeError::Trailing(1)));
    }
}

#[test]
fn items_round_trip() {
    let attr = ImportAttr { mode: 0o644, owner: Some((1, 2)), atime: -5, mtime: i64::MAX };
    let all = [
        Item::Enter { name: b"d" },
        Item::File { name: b"f", attr, xattrs: vec![(b"user.a", b"1")], data: b"x", hold: 7 },
        Item::Data { offset: 1 << 40, bytes: &[0; 5000] },
        Item::Leave { attr, xattrs: Vec::new() },
    ];
    let mut items = Items::default();
    for item in &all {
        items.push(item);
    }
    let mut rest = items.as_bytes();
    for item in &all {
        assert_eq!(Items::next(&mut rest), Some(Ok(item.clone())));
    }
    assert_eq!(Items::next(&mut rest), None);
}

/// Contents that are not copied. The pieces together are the message that a copy would be, and the
/// contents in them are the caller's own memory.
#[test]
fn contents_apart_are_where_a_copy_would_be() {
    let attr = ImportAttr { mode: 0o644, owner: None, atime: 1, mtime: 2 };
    let contents: Vec<Vec<u8>> =
        [0, 1, 127, 128, 5000, 70_000].map(|length| vec![length as u8; length]).into();
    let holds = [0, 1, 128, u64::MAX];
    let xattrs: [&[(&[u8], &[u8])]; 2] = [&[], &[(b"user.a", b"")]];
    let (mut copied, mut apart) = (Items::default(), Items::default());
    let mut outside = Vec::new();
    for (n, data) in contents.iter().flat_map(|data| [data; 4]).enumerate() {
        let (hold, xattrs) = (holds[n % 4], xattrs[n / 4 % 2].to_vec());
        let item = Item::File { name: b"name", attr, xattrs, data, hold };
        copied.push(&item);
        assert!(apart.push_apart(&item));
        outside.push(&data[..]);
        for items in [&mut copied, &mut apart] {
            items.push(&Item::Back);
        }
        assert_eq!(apart.len(), copied.len());
    }
    let pieces = apart.pieces(outside.iter().copied());
    assert!(pieces.concat() == copied.as_bytes());
    let own = |piece: &&[u8]| outside.iter().any(|data| std::ptr::eq(*data, *piece));
    assert_eq!(pieces.iter().filter(|piece| own(piece)).count(), outside.len());
    for length in [0, 127, 128, copied.len()] {
        let items = &copied.as_bytes()[..length];
        let (mut whole, mut begun) = (Vec::new(), Vec::new());
        encode(&Request { id: 300, call: Call::Import { items } }, &mut whole);
        Request::begin_import(300, length, &mut begun);
        begun.extend_from_slice(items);
        assert!(begun == whole, "{length}");
    }
    let length = apart.len();
    assert!(!apart.push_apart(&Item::Back));
    assert_eq!(apart.len(), length);
    apart.clear();
    assert!(apart.is_empty() && apart.pieces([]).concat().is_empty());
}

#[test]
fn replies_round_trip() {
    let failure = Failure::new(FailureKind::NoSpace, "full").at(b"/a").hint("delete something");
    for body in [Body::Failed(failure), Body::Data(Bytes(vec![1, 2, 3]))] {
        let reply = Reply { id: u32::MAX, body };
        let mut bytes = Vec::new();
        encode(&reply, &mut bytes);
        assert_eq!(decode::<Reply>(&bytes), Ok(reply));
    }
}

/// Contents are copied as a run: by number or by byte, the message is the same.
#[test]
fn a_message_is_encoded_behind_what_is_there() {
    let reply = Reply { id: 300, body: Body::Data(Bytes((0..=255).cycle().take(3000).collect())) };
    let mut bytes = b"before".to_vec();
    encode(&reply, &mut bytes);
    let alone = postcard::to_extend(&reply, Vec::new()).unwrap();
    assert!(bytes == [&b"before"[..], &alone].concat());
}

#[test]
fn frames_round_trip_and_refuse_too_long_ones() {
    let mut stream = Vec::new();
    write_frame(&mut stream, b"one").unwrap();
    write_frame(&mut stream, b"").unwrap();
    let mut cursor = Cursor::new(stream.clone());
    let mut buffer = Vec::new();
    read_frame(&mut cursor, &mut buffer).unwrap();
    assert_eq!(buffer, b"one");
    read_frame(&mut cursor, &mut buffer).unwrap();
    assert_eq!(buffer, b"");
    assert!(matches!(read_frame(&mut cursor, &mut buffer), Err(FrameError::Closed)));

    // Nothing of a longer one before is left, and nothing is missing of one that follows.
    let mut stream = Vec::new();
    let messages = [&[1; 5000][..], b"short", &[2; 9000], b""];
    for message in messages {
        write_frame(&mut stream, message).unwrap();
    }
    let mut cursor = Cursor::new(stream);
    for message in messages {
        read_frame(&mut cursor, &mut buffer).unwrap();
        assert!(buffer == message, "{} bytes", message.len());
    }

    let mut stream = Vec::new();
    write_frame(&mut stream, b"one").unwrap();
    let long = ((FRAME_BYTES_MAX + 1) as u32).to_le_bytes();
    let refused = read_frame(&mut Cursor::new(long), &mut buffer);
    assert!(matches!(refused, Err(FrameError::TooLong(_))), "{refused:?}");
    let torn = read_frame(&mut Cursor::new(&stream[..5]), &mut buffer);
    assert!(torn.is_err_and(|error| error.is_gone()));
}
