use std::time::Duration;

use futures::{StreamExt, stream};
use sandbar_core::{ByteStream, Error, ErrorKind, ExitStatus, Files, GuestPath, ReadOptions, Result};

use crate::envd::EnvdClient;
use crate::envd::cleanup::Cleanup;
use crate::envd::files::text;
use crate::envd::script::Script;
use crate::random::word;

const EXPORT: &str = "export";
/// How long packing may take: the reference's own five minutes are for less than a tree of a million files.
const PACK: Duration = Duration::from_secs(1800);
/// There is nothing of that name.
const MISSING: i32 = 44;
/// Something became shorter while it was packed.
const SHRANK: i32 = 45;
/// Packs `$1` into the file `$2/tree.tar`, with the name that it has in its folder. What is no file, folder or link is left out, and whose it is, too.
const PACK_TREE: &str = r#"
path=$1 spool=$2
LC_ALL=C; export LC_ALL
[ -e "$path" ] || [ -L "$path" ] || exit 44
cd -- "${path%/*}/" || exit 1
umask 077
mkdir -- "$spool" || exit 1
find "./${path##*/}" \( -type f -o -type d -o -type l \) -print0 >"$spool/names" 2>"$spool/complaints" || { cat "$spool/complaints" >&2; exit 1; }
tar -c -f "$spool/tree.tar" --format=gnu --owner=0 --group=0 --numeric-owner \
  --transform='flags=rh;s,^\./,,' --no-recursion --null -T "$spool/names" 2>"$spool/complaints"
status=$?
# What was removed or changed while it was read is as it was read; what became shorter was filled up, and is nobody's file.
if grep -q 'File shrank' "$spool/complaints"; then cat "$spool/complaints" >&2; exit 45; fi
if [ "$status" != 0 ] && [ "$status" != 1 ]; then cat "$spool/complaints" >&2; exit "$status"; fi
wc -c <"$spool/tree.tar"
"#;

impl EnvdClient {
    pub(super) async fn export_tree(&self, path: &GuestPath) -> Result<ByteStream> {
        let operation = self.guest.operation(EXPORT);
        let from = text(path, operation)?.to_owned();
        if path.is_root() {
            return Err(operation
                .fail(ErrorKind::InvalidInput, "`/` can't be exported: name a folder or file below it"));
        }
        let spool = format!("/tmp/.sandbar-export-{}", word());
        let cleanup = Cleanup::new(self, vec![spool.clone()], operation);
        let packed = self.script(Script::new(PACK_TREE, vec![from, spool.clone()], PACK), operation).await;
        let failed = match packed {
            Ok(done) => match done.status {
                ExitStatus::Code(0) => match String::from_utf8_lossy(&done.stdout).trim().parse::<u64>() {
                    Ok(size) => return self.fetch(&spool, size, cleanup).await,
                    Err(_) => done.failed("measure what was packed inside", operation),
                },
                ExitStatus::Code(MISSING) => {
                    Error::not_found(EXPORT, format!("`{path}`")).with_backend(operation.backend)
                }
                ExitStatus::Code(SHRANK) => operation
                    .fail(
                        ErrorKind::Unexpected,
                        format!("a file changed while it was packed: {}", done.complaint()),
                    )
                    .with_retry(sandbar_core::Retry::Safe),
                _ => done.failed("pack it inside", operation),
            },
            Err(error) => error,
        };
        cleanup.now().await;
        Err(failed.with_resource(format!("`{path}`")))
    }

    /// Reads the packed tree as it comes. Its name is gone as soon as it is open: whatever becomes of the stream leaves nothing inside.
    async fn fetch(&self, spool: &str, size: u64, cleanup: Cleanup) -> Result<ByteStream> {
        let operation = self.guest.operation(EXPORT);
        let file = GuestPath::new(format!("{spool}/tree.tar"))?;
        let user = self.user(None, EXPORT).await?;
        let opened = self.guest.read_opts(&file, ReadOptions { range: None, user }).await;
        let read = match opened {
            Ok(read) => read,
            Err(error) => {
                cleanup.now().await;
                return Err(error.with_operation(EXPORT));
            }
        };
        cleanup.now().await;
        let short = move |came: u64| {
            operation
                .fail(ErrorKind::Unavailable, format!("{came} bytes came of {size}: it ended early"))
                .with_retry(sandbar_core::Retry::Safe)
        };
        let body = stream::unfold(Some((read.body, 0_u64)), move |state| async move {
            let (mut body, came) = state?;
            match body.next().await {
                Some(Ok(bytes)) => {
                    let came = came + bytes.len() as u64;
                    Some((Ok(bytes), Some((body, came))))
                }
                Some(Err(error)) => Some((Err(error.with_operation(EXPORT)), None)),
                None if came != size => Some((Err(short(came)), None)),
                None => None,
            }
        });
        Ok(body.boxed())
    }
}
