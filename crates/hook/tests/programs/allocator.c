// Another allocator is preloaded: the real functions are its, also for a library that is bound lazily.
#include "hook_api.h"

int main(int argc, char **argv) {
    (void)argc;
    int (*is_ours)(void *) = function(RTLD_DEFAULT, "is_ours");
    void *library = dlopen(beside(argv[0], "liblazy.so"), RTLD_LAZY);
    CHECK(library, "%s", dlerror());
    void *(*first)(size_t) = function(library, "first");
    void *(*second)(size_t, size_t) = function(library, "second");
    void *(*third)(void *, size_t) = function(library, "third");
    void (*last)(void *) = function(library, "last");
    void *volatile old = malloc(10);
    CHECK(is_ours(old), "the other allocator is not in place");
    load_hook();
    start();
    CHECK(count_slots("liblazy.so", NULL, PATCHED, NULL) == 4, "all four");
    memintro_values before = totals();
    void *blocks[] = {first(100), second(2, 100), third(NULL, 300), malloc(400)};
    memintro_values after = totals();
    for (int i = 0; i < 4; i++) CHECK(is_ours(blocks[i]), "block %d is not the other allocator's", i);
    CHECK(after.allocations - before.allocations == 4, "%lu", after.allocations - before.allocations);
    CHECK(after.allocated_bytes - before.allocated_bytes == 1000, "%lu", after.allocated_bytes - before.allocated_bytes);
    for (int i = 0; i < 4; i++) last(blocks[i]);
    last(old);
    CHECK(totals().frees - before.frees == 4, "%lu", totals().frees - before.frees);
    stop();
    last(first(5));
    return 0;
}
