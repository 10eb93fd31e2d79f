#include <dlfcn.h>

// The volatile keeps the compiler from a jump, which would hide this library's address from the loader.
void *open_plugin(const char *name) {
    void *volatile library = dlopen(name, RTLD_NOW);
    return library;
}
