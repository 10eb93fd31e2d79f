// A library with RUNPATH $ORIGIN/inner, loaded by its name alone from another one with RUNPATH $ORIGIN, while tracking.
// The loader finds such paths by the return address of the dlopen call: no function may stand in between.
#include "hook_api.h"

int main(int argc, char **argv) {
    (void)argc;
    void *plugin_host = dlopen(beside(argv[0], "plugins/libhost.so"), RTLD_NOW);
    CHECK(plugin_host, "%s", dlerror());
    void *(*open_plugin)(const char *) = function(plugin_host, "open_plugin");
    load_hook();
    start();
    void *library = open_plugin("libouter.so");
    CHECK(library, "%s", dlerror());
    void *(*outer)(size_t) = function(library, "outer");
    memintro_values before = totals();
    for (int i = 0; i < 5; i++) free(outer(1001));
    memintro_values after = totals();
    CHECK(after.allocated_bytes - before.allocated_bytes == 5005, "%lu", after.allocated_bytes - before.allocated_bytes);
    CHECK(count_slots("libinner.so", "malloc", PATCHED, NULL) == 1, "the library that came along");
    stop();
    return 0;
}
