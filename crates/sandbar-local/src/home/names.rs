use rustix::fs::{AtFlags, FlockOperation, Mode, OFlags, flock, openat, readlinkat, symlinkat, unlinkat};
use rustix::io::Errno;
use sandbar_core::{SandboxId, SandboxName};

use super::{Folder, Home};
use crate::error::found;

impl Home {
    /// Gives `name` to `id`; `Some` is the sandbox that has it already.
    pub(crate) fn claim_name(
        &self,
        name: &SandboxName,
        id: &SandboxId,
    ) -> std::io::Result<Option<SandboxId>> {
        for _ in 0..2 {
            match symlinkat(id.as_str(), self, place(name)) {
                Ok(()) => return Ok(None),
                Err(Errno::EXIST) => {}
                Err(cause) => return Err(cause.into()),
            }
            let Some(holder) = self.name_holder(name)? else { continue };
            if Folder::open(self, &holder)?.is_some() {
                return Ok(Some(holder));
            }
            self.drop_stale_name(name)?;
        }
        Err(std::io::Error::other(format!("name `{name}` changes hands all the time")))
    }

    /// The sandbox that has `name`.
    pub(crate) fn name_holder(&self, name: &SandboxName) -> std::io::Result<Option<SandboxId>> {
        let Some(text) = found(readlinkat(self, place(name), Vec::new()))? else { return Ok(None) };
        let id = text.to_str().ok().and_then(|text| SandboxId::new(text).ok());
        id.map(Some).ok_or_else(|| std::io::Error::other(format!("name `{name}` leads to no sandbox id")))
    }

    /// Takes `name` from `id`; one that is another sandbox' by now stays.
    pub(crate) fn release_name(&self, name: &SandboxName, id: &SandboxId) -> std::io::Result<()> {
        if self.name_holder(name)?.as_ref() == Some(id) {
            found(unlinkat(self, place(name), AtFlags::empty()))?;
        }
        Ok(())
    }

    /// The names of `id`: for a sandbox whose record can't be read.
    pub(crate) fn names_of(&self, id: &SandboxId) -> std::io::Result<Vec<SandboxName>> {
        let mut names = Vec::new();
        for name in self.entries("names")? {
            if let Ok(name) = SandboxName::new(name)
                && self.name_holder(&name).ok().flatten().as_ref() == Some(id)
            {
                names.push(name);
            }
        }
        Ok(names)
    }

    /// Removes a name whose sandbox is gone. Two that see the same stale name must not remove each other's new one, so this is done one by one.
    fn drop_stale_name(&self, name: &SandboxName) -> std::io::Result<()> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let names = openat(self, "names", flags, Mode::empty())?;
        flock(&names, FlockOperation::LockExclusive)?;
        let Some(holder) = self.name_holder(name)? else { return Ok(()) };
        if Folder::open(self, &holder)?.is_none() {
            found(unlinkat(self, place(name), AtFlags::empty()))?;
        }
        Ok(())
    }
}

fn place(name: &SandboxName) -> String {
    format!("names/{name}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::new_id;

    #[test]
    fn a_name_has_one_holder_and_a_stale_one_is_free() {
        let scratch = tempfile::tempdir().unwrap();
        let home = Home::ensure(&scratch.path().join("home")).unwrap();
        let name = SandboxName::new("web").unwrap();
        let (first, second) = (new_id().unwrap(), new_id().unwrap());
        let _folder = Folder::create(&home, &first).unwrap().unwrap();
        assert_eq!(home.claim_name(&name, &first).unwrap(), None);
        assert_eq!(home.claim_name(&name, &second).unwrap(), Some(first.clone()));
        assert_eq!(home.names_of(&first).unwrap(), std::slice::from_ref(&name));
        home.release_name(&name, &second).unwrap();
        assert_eq!(
            home.name_holder(&name).unwrap(),
            Some(first.clone()),
            "not the holder, so nothing happens"
        );

        rustix::fs::renameat(&home, format!("sandboxes/{first}"), &home, "trash/x").unwrap();
        assert_eq!(home.claim_name(&name, &second).unwrap(), None, "its holder is gone");
        assert_eq!(home.name_holder(&name).unwrap(), Some(second));
    }
}
