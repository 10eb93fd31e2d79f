// Full RELRO: the slots are read-only before start, during tracking and after stop, and every call in between is seen.
#include "hook_api.h"

static char protection(const void *address) {
    FILE *maps = fopen("/proc/self/maps", "r");
    char line[4096], write = '?';
    while (fgets(line, sizeof line, maps)) {
        unsigned long from, to;
        char read, here;
        if (sscanf(line, "%lx-%lx %c%c", &from, &to, &read, &here) == 4 && from <= (unsigned long)address &&
            (unsigned long)address < to)
            write = here;
    }
    fclose(maps);
    return write;
}

int main(void) {
    load_hook();
    start();
    void **slot;
    CHECK(count_slots("relro", "malloc", PATCHED, &slot) == 1, "malloc's slot");
    CHECK(protection(slot) == '-', "writable while tracking");
    memintro_values before = totals();
    for (int i = 0; i < 1000; i++) {
        void *volatile block = malloc(4001);
        free(block);
    }
    memintro_values after = totals();
    CHECK(after.allocations - before.allocations == 1000, "%lu", after.allocations - before.allocations);
    CHECK(after.allocated_bytes - before.allocated_bytes == 4001000, "%lu", after.allocated_bytes);
    CHECK(after.frees - before.frees == 1000, "%lu", after.frees - before.frees);
    void *ours = *slot;
    stop();
    CHECK(*slot != ours, "stop left our function in the slot");
    CHECK(*slot == dlsym(RTLD_DEFAULT, "malloc"), "stop put something else there than malloc");
    CHECK(protection(slot) == '-', "writable after stop");
    before = totals();
    free(malloc(4001));
    after = totals();
    CHECK(after.allocations == before.allocations, "seen after stop");
    // Whoever kept a copy of our function can go on calling it.
    void *volatile block = ((void *(*)(size_t))ours)(100);
    CHECK(block, "a copied pointer no longer works");
    free(block);
    return 0;
}
