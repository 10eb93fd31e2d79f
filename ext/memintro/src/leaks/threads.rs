//! Where the stacks of sleeping threads end, as the kernel tells: the stack pointer of a thread that waits in a system
//! call. Of one that runs it tells nothing, and all of its stack is searched.

/// Stack pointers of the other threads of this process, as far as they are known; at most so many.
pub(super) fn stack_pointers(most: usize) -> Vec<usize> {
    let mut found = Vec::new();
    let Ok(threads) = std::fs::read_dir("/proc/self/task") else { return found };
    for thread in threads.flatten().take(most) {
        let Ok(text) = std::fs::read_to_string(thread.path().join("syscall")) else { continue };
        if let Some(pointer) = stack_pointer(&text) {
            found.push(pointer);
        }
    }
    found
}

/// `number arguments… sp pc`, or `-1 sp pc`; of a thread that runs, `running`.
fn stack_pointer(text: &str) -> Option<usize> {
    let mut words = text.split_ascii_whitespace().rev();
    words.next()?;
    let pointer = words.next()?.strip_prefix("0x")?;
    usize::from_str_radix(pointer, 16).ok().filter(|pointer| *pointer != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_kernel_says_of_threads() {
        let waits = "202 0x55d8 0x189 0x0 0x0 0x0 0xffffffff 0x7f9c2c1ffd10 0x7f9c2d2a6e29\n";
        assert_eq!(stack_pointer(waits), Some(0x7f9c_2c1f_fd10));
        assert_eq!(stack_pointer("-1 0x7ffc000 0x7f11\n"), Some(0x7ff_c000));
        assert_eq!(
            (stack_pointer("running\n"), stack_pointer(""), stack_pointer("1 0 0")),
            (None, None, None)
        );
    }
}
