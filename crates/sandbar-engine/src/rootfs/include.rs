/// Every file or folder of the host's `/etc` that the `host` template copies, and nothing else of it. Of folders only
/// files that everybody on the host may read are taken. A `*` at the end stands for any rest of the name.
pub const INCLUDED_ETC: &[&str] = &[
    // Certificates of authorities (public); `ssl/private` is not here on purpose.
    "ssl/certs",
    "ssl/openssl.cnf",
    "ssl/cert.pem",
    "ssl/ca-bundle.pem",
    "ca-certificates",
    "ca-certificates.conf",
    "pki/tls/certs",
    "pki/tls/cert.pem",
    "pki/tls/openssl.cnf",
    "pki/ca-trust",
    "crypto-policies",
    // The dynamic linker's search path.
    "ld.so.cache",
    "ld.so.conf",
    "ld.so.conf.d",
    "ld-musl-*",
    // Which of several programs a name means.
    "alternatives",
    // Time zone and language.
    "localtime",
    "timezone",
    "locale.conf",
    "locale.alias",
    "locale.gen",
    "default/locale",
    // Terminals and editors.
    "terminfo",
    "inputrc",
    "DIR_COLORS",
    "nanorc",
    "vim",
    // Names of types, services, protocols.
    "mime.types",
    "magic",
    "magic.mime",
    "services",
    "protocols",
    "rpc",
    "ethertypes",
    "networks",
    "host.conf",
    "gai.conf",
    "login.defs",
    "shells",
    // Settings of languages, libraries and tools.
    "java",
    "java-*",
    ".java",
    "maven",
    "gradle",
    "python",
    "python2*",
    "python3*",
    "perl",
    "php",
    "ruby",
    "gemrc",
    "R",
    "julia",
    "fonts",
    "groff",
    "manpath.config",
    "ImageMagick-*",
    "OpenCL",
    "glvnd",
    "vulkan",
    "gdb",
    "libnl",
    "libnl-3",
    "texmf",
    "xdg",
    "emacs",
    "bash_completion.d",
    "profile.d",
    // PostgreSQL's wrappers refuse to start without these.
    "postgresql-common",
    // What system this is.
    "os-release",
    "lsb-release",
    "debian_version",
    "redhat-release",
    "system-release",
    "alpine-release",
    "arch-release",
];

/// Whether a name of `/etc` (without folders) or a path in it is wanted, by one entry of the list.
pub(super) fn matches(entry: &str, name: &str) -> bool {
    match entry.strip_suffix('*') {
        Some(start) => name.starts_with(start),
        None => entry == name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_entry_reaches_a_secret() {
        let secrets = [
            "shadow",
            "shadow-",
            "gshadow",
            "sudoers",
            "sudoers.d",
            "ssh",
            "ssl/private",
            "ssl",
            "pki",
            "pki/tls/private",
            "hosts",
            "hostname",
            "machine-id",
            "resolv.conf",
            "passwd",
            "group",
            "fstab",
            "environment",
            "docker",
            "kubernetes",
            "NetworkManager",
            "wireguard",
            "default",
            "npmrc",
            "gitconfig",
            "pip.conf",
            "postgresql",
        ];
        for secret in secrets {
            assert!(!INCLUDED_ETC.iter().any(|entry| matches(entry, secret)), "`{secret}`");
        }
        assert!(INCLUDED_ETC.iter().any(|entry| matches(entry, "java-17-openjdk")));
    }
}
