// Loaded after start, and with it libstdc++.
#include <cstdlib>
#include <new>

struct alignas(64) Aligned { char bytes[192]; };

// Nothing may be left out by the compiler.
template <typename T> static T *used(T *pointer) {
    T *volatile kept = pointer;
    return kept;
}

extern "C" void run() {
    delete used(new int);
    delete[] used(new char[1000]);
    delete used(new Aligned);
    delete[] used(new (std::nothrow) char[500]);
    try {
        static volatile std::size_t huge = ~std::size_t{0} / 4;
        delete[] used(new char[huge]);
        std::abort();
    } catch (const std::bad_alloc &) {
    }
}
