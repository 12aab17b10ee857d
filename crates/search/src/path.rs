//! Paths as bytes: their last component, and one more.

/// The last component of a path, without trailing slashes; a slash if there is nothing else.
pub fn last_name(path: &[u8]) -> &[u8] {
    let Some(end) = path.iter().rposition(|&byte| byte != b'/') else {
        return &path[..path.len().min(1)];
    };
    let start = path[..end].iter().rposition(|&byte| byte == b'/').map_or(0, |slash| slash + 1);
    &path[start..=end]
}

/// Appends a component to a path.
pub(crate) fn push_name(path: &mut Vec<u8>, name: &[u8]) {
    if path.last() != Some(&b'/') {
        path.push(b'/');
    }
    path.extend_from_slice(name);
}
