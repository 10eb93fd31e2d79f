.globl answer, malloc
.type answer,%function
answer: bl malloc
 bl strdup
 adrp x0, :got:free
 ldr x0, [x0, :got_lo12:free]
 ret
.size answer, .-answer
.type malloc,%function
malloc: ret
.data
.globl table
.type table,%object
table: .quad calloc
 .quad free + 8
 .quad table
.size table, 24
