//! Releases memory that only start-up needed, and keeps file descriptors from child processes.
//!
//! Owns: the two system calls that have no safe function. Refuses to know: everything else. The law it keeps: no page
//! that was ever written is released, and no descriptor is closed here.
//!
//! Most of the resident memory of an idle process is program text that was executed once, and sixteen pages around each page
//! of it. A released page is still in the page cache, and is mapped again within a microsecond when it is needed.

/// Releases the pages of the program's own text. The kernel maps them again on demand.
pub fn release_text_pages() {
    #[cfg(target_os = "linux")]
    linux::release_text_pages();
}

/// Sets close-on-exec on every open descriptor except the three standard streams.
///
/// LMDB opens its data file for writing without that flag, and inherited descriptors do not have it either. Call this right
/// before a program is started: descriptors that another thread opens afterwards are not marked.
///
/// # Errors
///
/// Fails if the system does not list the open descriptors. Then no program must be started.
#[cfg(unix)]
pub fn close_on_exec() -> std::io::Result<()> {
    use std::os::fd::{BorrowedFd, RawFd};

    use rustix::io::{FdFlags, fcntl_setfd};

    let open = if cfg!(target_os = "linux") {
        "/proc/self/fd"
    } else {
        "/dev/fd"
    };
    for entry in std::fs::read_dir(open)? {
        let name = entry?.file_name();
        let number = name.to_str().and_then(|name| name.parse::<RawFd>().ok());
        let Some(number) = number.filter(|number| *number > 2) else {
            continue;
        };
        // SAFETY: the descriptor is used for this one call, which neither reads, writes nor closes. If it was closed since it
        // was listed, the call fails; if its number was taken since then, the new descriptor is to be marked, too.
        #[allow(
            unsafe_code,
            reason = "no safe function takes a descriptor by its number"
        )]
        let descriptor = unsafe { BorrowedFd::borrow_raw(number) };
        let _closed_since = fcntl_setfd(descriptor, FdFlags::CLOEXEC);
    }
    Ok(())
}

#[cfg(all(test, unix))]
mod tests {
    use rustix::io::{FdFlags, fcntl_getfd, fcntl_setfd};

    use super::*;

    #[test]
    fn every_descriptor_but_the_standard_streams_is_marked() {
        let file = std::fs::File::open("/dev/null").unwrap();
        fcntl_setfd(&file, FdFlags::empty()).unwrap();
        let streams = [
            fcntl_getfd(std::io::stdin()).unwrap(),
            fcntl_getfd(std::io::stdout()).unwrap(),
            fcntl_getfd(std::io::stderr()).unwrap(),
        ];
        close_on_exec().unwrap();
        assert_eq!(fcntl_getfd(&file).unwrap(), FdFlags::CLOEXEC);
        let now = [
            fcntl_getfd(std::io::stdin()).unwrap(),
            fcntl_getfd(std::io::stdout()).unwrap(),
            fcntl_getfd(std::io::stderr()).unwrap(),
        ];
        assert_eq!(now, streams);
    }
}

#[cfg(target_os = "linux")]
mod linux {
    use std::ffi::c_void;
    use std::ops::Range;

    use rustix::mm::{Advice, madvise};

    pub(super) fn release_text_pages() {
        let (Ok(maps), Ok(own)) = (
            std::fs::read_to_string("/proc/self/maps"),
            std::fs::read_link("/proc/self/exe"),
        ) else {
            return;
        };
        let own = own.to_string_lossy();
        for range in maps.lines().filter_map(|line| text_range(line, &own)) {
            let start = std::ptr::without_provenance_mut::<c_void>(range.start);
            // SAFETY: the range is mapped from the program's file, privately, readable and executable and never written, so every
            // page in it equals the file. A released page is read from the file again when it is next accessed.
            #[allow(unsafe_code, reason = "no safe function gives pages back")]
            let _stays_as_it_is = unsafe { madvise(start, range.len(), Advice::LinuxDontNeed) };
        }
    }

    /// Returns the range of a mapping, if it is program text of the file `own`.
    fn text_range(line: &str, own: &str) -> Option<Range<usize>> {
        let mut fields = line.splitn(6, ' ');
        let (range, permissions) = (fields.next()?, fields.next()?);
        let path = fields.nth(3)?.trim_start();
        if permissions != "r-xp" || path != own {
            return None;
        }
        let (start, end) = range.split_once('-')?;
        let number = |digits| usize::from_str_radix(digits, 16).ok();
        Some(number(start)?..number(end)?)
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn only_text_of_the_program_itself_is_given_back() {
            let own = "/usr/bin/a b";
            let text = |line| text_range(line, own);
            let line = "5600-5800 r-xp 00001000 08:01 77                     /usr/bin/a b";
            assert_eq!(text(line), Some(0x5600..0x5800));
            for other in [
                "5600-5800 r--p 00001000 08:01 77                     /usr/bin/a b",
                "5600-5800 rwxp 00001000 08:01 77                     /usr/bin/a b",
                "5600-5800 r-xp 00001000 08:01 77                     /usr/lib/libc.so.6",
                "5600-5800 r-xp 00000000 00:00 0                      [vdso]",
                "5600-5800 r-xp 00000000 00:00 0 ",
                "",
            ] {
                assert_eq!(text(other), None, "{other}");
            }
        }

        #[test]
        fn the_program_goes_on() {
            for _ in 0..3 {
                release_text_pages();
                assert_eq!("still here".len(), 10);
            }
        }
    }
}
