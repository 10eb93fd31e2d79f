// operator new and delete of a library that comes after start, with the C++ runtime in its wake.
#include "hook_api.h"

int main(int argc, char **argv) {
    (void)argc;
    load_hook();
    start();
    void *library = dlopen(beside(argv[0], "libcxx.so"), RTLD_LAZY);
    CHECK(library, "%s", dlerror());
    void (*run)(void) = function(library, "run");
    run();
    CHECK(count_slots("libcxx.so", "_Znwm", PATCHED, NULL) == 1, "new");
    memintro_values before = totals();
    for (int i = 0; i < 10; i++) run();
    memintro_values after = totals();
    // Not the exception: it is allocated inside the real operator new.
    CHECK(after.allocations - before.allocations == 40, "%lu", after.allocations - before.allocations);
    CHECK(after.frees - before.frees == 40, "%lu", after.frees - before.frees);
    stop();
    run();
    return 0;
}
