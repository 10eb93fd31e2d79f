// A program at a fixed address that takes &malloc: its PLT entry is what `&malloc` is in every module. It leads to the
// program's own slot and must never be mistaken for the real function.
#include "hook_api.h"

void *(*address_in_library(void))(size_t);
void *through_slot(size_t);

int main(void) {
    void *(*volatile pointer)(size_t) = malloc;
    CHECK(pointer == address_in_library(), "no canonical PLT entry: this test tests nothing");
    CHECK((uintptr_t)pointer < 0x10000000, "not in the program: %p", (void *)pointer);
    load_hook();
    start();
    CHECK(pointer == address_in_library(), "two addresses for one function");
    CHECK(count_slots("no_pie", "malloc", PATCHED, NULL) == 1, "the program's slot");
    CHECK(count_slots("no_pie", "malloc", FOREIGN, NULL) == 0, "somebody else's?");
    CHECK(count_slots("libno_pie", "malloc", FOREIGN, NULL) == 0, "what leads to the program is no escape");
    memintro_values before = totals();
    free(malloc(10));
    free(pointer(20));
    free(through_slot(30));
    free(address_in_library()(40));
    memintro_values after = totals();
    CHECK(after.allocations - before.allocations == 4, "%lu", after.allocations - before.allocations);
    CHECK(after.allocated_bytes - before.allocated_bytes == 100, "%lu", after.allocated_bytes - before.allocated_bytes);
    CHECK(after.frees - before.frees == 4, "%lu", after.frees - before.frees);
    stop();
    before = totals();
    free(malloc(10));
    free(pointer(20));
    free(through_slot(30));
    after = totals();
    CHECK(after.allocations == before.allocations, "seen after stop");
    CHECK(pointer == address_in_library(), "two addresses for one function");
    return 0;
}
