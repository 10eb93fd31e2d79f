// A patched library that is gone before stop, with other memory in its place; and another library where it was.
#include "hook_api.h"

#include <sys/mman.h>

int main(int argc, char **argv) {
    (void)argc;
    void *library = dlopen(beside(argv[0], "liblazy.so"), RTLD_LAZY);
    CHECK(library, "%s", dlerror());
    load_hook();
    start();
    void **slot;
    CHECK(count_slots("liblazy.so", "malloc", PATCHED, &slot) == 1, "malloc");
    void *ours = *slot;
    CHECK(dlclose(library) == 0, "%s", dlerror());
    void *page = (void *)((uintptr_t)slot & ~4095UL);
    void *there = mmap(page, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    CHECK(there == page, "the library is still there");
    *slot = ours;
    hook->refresh();
    CHECK(count_slots("liblazy.so", NULL, PATCHED, NULL) == 0, "a library that is gone");
    stop();
    CHECK(*slot == ours, "stop wrote to memory that is no slot any more");
    munmap(page, 4096);

    start();
    library = dlopen(beside(argv[0], "liblazy.so"), RTLD_LAZY);
    // The look-up that follows a dlopen finds the new library.
    void *(*first)(size_t) = function(library, "first");
    memintro_values before = totals();
    free(first(17));
    memintro_values after = totals();
    CHECK(after.allocated_bytes - before.allocated_bytes == 17, "%lu", after.allocated_bytes - before.allocated_bytes);
    dlclose(library);
    stop();
    library = dlopen(beside(argv[0], "liblazy.so"), RTLD_LAZY);
    first = function(library, "first");
    before = totals();
    free(first(17));
    after = totals();
    CHECK(after.allocations == before.allocations, "seen after stop");
    return 0;
}
