/* What Debian's libunwind.a asks of glibc and musl does not have: the checked twins of two functions, which only its
   messages need. */
#include <stdarg.h>
#include <stdio.h>

int __vfprintf_chk(FILE *stream, int flag, const char *format, va_list arguments)
{
    (void)flag;
    return vfprintf(stream, format, arguments);
}

int __vsnprintf_chk(char *into, size_t most, int flag, size_t room, const char *format, va_list arguments)
{
    (void)flag;
    (void)room;
    return vsnprintf(into, most, format, arguments);
}
