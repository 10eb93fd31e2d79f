# A library with as many relocations by symbol as a large one: 1,000 calls to functions that no module defines (they are
# never called, so never bound), and one to malloc.
        .altmacro
        .macro  calls n
        call    nobody_defines_this_one_\n@plt
        .endm
        .text
        .globl  allocate
        .type   allocate, @function
allocate:
        jmp     malloc@plt
never_called:
        .set    i, 0
        .rept   1000
        calls   %i
        .set    i, i + 1
        .endr
        .section .note.GNU-stack, "", @progbits
