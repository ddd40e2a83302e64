use sandbar_rig::Rig;

/// Prints what is to be reached in the rig around it, as JSON, for programs that are not written in Rust: a page by its name (`url`), the one
/// `address` that leads to, and a page by an `other` name.
pub(crate) fn hosts() {
    let rig = Rig::connect();
    let (name, address) = (rig.unique("open"), rig.address().v4);
    rig.zone(&name).a(address).publish();
    let (other, _) = rig.host("other");
    println!(r#"{{"url":"http://{name}/","address":"{address}","other":"http://{other}/"}}"#);
}
