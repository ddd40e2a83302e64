/// Something that this machine has or lacks, and that matters to sandboxes.
#[derive(Debug, PartialEq, Eq)]
pub struct Condition {
    /// Its name: kebab-case, and never another one for the same thing.
    pub id: &'static str,
    /// In a few words, when it holds.
    pub title: &'static str,
    /// How much depends on it.
    pub need: Need,
    /// Which feature or wall is weaker or gone without it.
    pub cost: &'static str,
    /// The ways in which it can fail to hold.
    pub faults: &'static [&'static Fault],
}

/// How much depends on a condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Need {
    /// No sandbox without it.
    Needed,
    /// A wall or a limit is weaker without it.
    Recommended,
    /// A feature is missing without it.
    Optional,
}

impl Need {
    /// The word in JSON and documents.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Needed => "needed",
            Self::Recommended => "recommended",
            Self::Optional => "optional",
        }
    }
}

/// One way in which a condition fails to hold. `doctor`, the error of a creation and the record of a sandbox say it in these words.
#[derive(Debug, PartialEq, Eq)]
pub struct Fault {
    /// Its name: the condition's, a slash, and a word.
    pub id: &'static str,
    /// What is the matter.
    pub says: &'static str,
    /// How bad it is.
    pub weight: Weight,
    /// What mends it, in order; each is a command to copy.
    pub mends: &'static [Mend],
}

/// How bad a fault is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Weight {
    /// The condition does not hold.
    Missing,
    /// It holds in part, or not for long.
    Warning,
}

/// A command that mends a fault.
///
/// `{user}`, `{uid}`, `{ids}` (a range of subordinate ids that nobody has), `{home}` (the data folder), `{parent}` (the folder it is in), `{helper}` (the executable) and `{covers}` (what lies over `/proc`) are replaced by what they are on this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mend {
    /// As root, wherever this is.
    Root(&'static str),
    /// As root of a machine that is no container.
    Host(&'static str),
    /// As root of a machine that systemd runs.
    Systemd(&'static str),
    /// As the user who runs this, on a machine that systemd runs.
    SystemdUser(&'static str),
    /// By whoever starts the container that this is.
    Container(&'static str),
    /// As the user who runs this.
    User(&'static str),
    /// As the user who runs this, on a machine that is no container.
    HostUser(&'static str),
    /// A kernel setting, `name = value`, as root, for now and for later boots; in a container, of its host.
    Setting(&'static str),
    /// A package, by its names.
    Package(&'static Package),
}

/// What a package is called.
#[derive(Debug, PartialEq, Eq)]
pub struct Package {
    /// Debian, Ubuntu and what comes of them.
    pub debian: &'static str,
    /// Fedora, Red Hat and what comes of them.
    pub fedora: &'static str,
    /// Arch.
    pub arch: &'static str,
    /// Alpine.
    pub alpine: &'static str,
    /// SUSE.
    pub suse: &'static str,
}
