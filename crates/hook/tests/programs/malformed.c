// A library whose dynamic section the loader accepts and we do not: it is skipped and named, all others are patched.
#include "hook_api.h"

int main(int argc, char **argv) {
    (void)argc;
    void *library = dlopen(beside(argv[0], "libmalformed.so"), RTLD_LAZY);
    CHECK(library, "%s", dlerror());
    void *(*first)(size_t) = function(library, "first");
    load_hook();
    start();
    CHECK(count_slots("libmalformed.so", NULL, MALFORMED, NULL) == 1, "not named");
    CHECK(count_slots("libmalformed.so", "malloc", PATCHED, NULL) == 0, "patched all the same");
    memintro_values before = totals();
    void *volatile block = first(10);
    CHECK(totals().allocations == before.allocations, "seen all the same");
    free(block);
    free(malloc(20));
    CHECK(totals().allocated_bytes - before.allocated_bytes == 20, "the program itself was not patched");
    stop();
    free(first(10));
    return 0;
}
