// Pointers in data belong to the program. They are taken over only while they hold the real function, and given back
// only if they still hold ours.
#include "hook_api.h"

static int own_calls;
static void *own_malloc(size_t size) { own_calls++; return malloc(size); }
static void *own_realloc(void *block, size_t size) { own_calls++; return realloc(block, size); }

int main(int argc, char **argv) {
    (void)argc;
    void *library = dlopen(beside(argv[0], "libdata.so"), RTLD_NOW);
    CHECK(library, "%s", dlerror());
    void *(**lib_malloc)(size_t) = function(library, "lib_malloc");
    void (**lib_free)(void *) = function(library, "lib_free");
    void *(**lib_realloc)(void *, size_t) = function(library, "lib_realloc");
    void *(**lib_calloc)(size_t, size_t) = function(library, "lib_calloc");
    void *real_free = (void *)*lib_free, *real_calloc = (void *)*lib_calloc;
    *lib_malloc = own_malloc;
    load_hook();
    start();
    CHECK(*lib_malloc == own_malloc, "the program's choice was overwritten");
    CHECK(count_slots("libdata.so", "malloc", FOREIGN, NULL) == 1, "not listed as somebody else's");
    CHECK((void *)*lib_free != real_free, "not taken over");
    CHECK(count_slots("libdata.so", NULL, PATCHED, NULL) == 3, "three of four");

    memintro_values before = totals();
    void *volatile block = (*lib_calloc)(10, 10);
    (*lib_free)(block);
    block = (*lib_malloc)(33);
    free(block);
    memintro_values after = totals();
    CHECK(after.allocations - before.allocations == 2, "%lu", after.allocations - before.allocations);
    CHECK(after.allocated_bytes - before.allocated_bytes == 133, "%lu", after.allocated_bytes - before.allocated_bytes);
    CHECK(own_calls == 1, "%d", own_calls);

    // Now the program takes one back, and sets another one to what the library has already (our function).
    *lib_realloc = own_realloc;
    hook->refresh();
    CHECK(count_slots("libdata.so", "realloc", LOST, NULL) == 1, "not listed as lost");
    CHECK(*lib_realloc == own_realloc, "the program's choice was overwritten");
    *lib_malloc = (void *(*)(size_t))(uintptr_t)0;
    stop();
    CHECK(*lib_realloc == own_realloc, "stop overwrote the program's choice");
    CHECK(!*lib_malloc, "stop overwrote the program's choice");
    CHECK((void *)*lib_free == real_free, "free was not given back");
    CHECK((void *)*lib_calloc == real_calloc, "calloc was not given back");
    return 0;
}
