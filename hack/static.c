/*
 * Linked into the static programs of hack/release for Linux.
 *
 * A static program has glibc in it, but where /etc/nsswitch.conf names a module, as desktops do for host names
 * (mdns4_minimal, resolve), glibc loads the module, and with it the libc of the machine. If that is of another version, the
 * program dies of a signal. Files and DNS are built in, and are all that kubectl itself asks: it is linked without cgo.
 * The database passwd is asked for the home folder where HOME is not set.
 */
#include <nss.h>

__attribute__((constructor)) static void
use_no_modules(void)
{
    __nss_configure_lookup("hosts", "files dns");
    __nss_configure_lookup("passwd", "files");
}
