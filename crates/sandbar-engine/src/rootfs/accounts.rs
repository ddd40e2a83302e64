/// Our own users; nothing of the host's file is shown. Numbers are those every distribution shares.
pub(super) const PASSWD: &str = "\
root:x:0:0:root:/root:/bin/bash
daemon:x:1:1:daemon:/usr/sbin:/usr/sbin/nologin
bin:x:2:2:bin:/bin:/usr/sbin/nologin
sys:x:3:3:sys:/dev:/usr/sbin/nologin
sync:x:4:65534:sync:/bin:/bin/sync
man:x:6:12:man:/var/cache/man:/usr/sbin/nologin
mail:x:8:8:mail:/var/mail:/usr/sbin/nologin
www-data:x:33:33:www-data:/var/www:/usr/sbin/nologin
user:x:1000:1000:user:/home/user:/bin/bash
nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin
";

pub(super) const GROUP: &str = "\
root:x:0:
daemon:x:1:
bin:x:2:
sys:x:3:
adm:x:4:
tty:x:5:
disk:x:6:
mail:x:8:
man:x:12:
sudo:x:27:user
www-data:x:33:
shadow:x:42:
utmp:x:43:
staff:x:50:
users:x:100:
user:x:1000:
nogroup:x:65534:
";

pub(super) const HOSTS: &str = "\
127.0.0.1 localhost
::1 localhost ip6-localhost ip6-loopback
";

pub(super) const NSSWITCH: &str = "\
passwd: files
group: files
shadow: files
hosts: files dns
networks: files
protocols: files
services: files
ethers: files
rpc: files
";

pub(super) const PROFILE: &str = "\
if [ \"$(id -u)\" = 0 ]; then
  PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
else
  PATH=/usr/local/bin:/usr/bin:/bin:/usr/local/games:/usr/games
fi
export PATH
[ -n \"$BASH\" ] && [ \"$BASH\" != /bin/sh ] && [ -f /etc/bash.bashrc ] && . /etc/bash.bashrc
for part in /etc/profile.d/*.sh; do
  [ -r \"$part\" ] && . \"$part\"
done
unset part
";

pub(super) const BASHRC: &str = "\
[ -z \"$PS1\" ] && return
shopt -s checkwinsize
PS1='\\u@\\h:\\w\\$ '
";

/// Package managers that would need the host's data base, which is not here.
pub(super) const PACKAGE_MANAGERS: &[&str] =
    &["apt", "apt-get", "aptitude", "apk", "dnf", "microdnf", "pacman", "yum", "zypper"];

/// Stands in for each of [`PACKAGE_MANAGERS`] that the host has.
pub(super) const REFUSAL: &str = "\
#!/bin/sh
echo \"${0##*/}: the host template has no package data base, so nothing can be installed with it.\" >&2
echo \"Use an imported or a built template (sandbar run -t ...), or a language's own installer (pip, npm, cargo).\" >&2
exit 1
";
