"""The only room that touches graphs: constants, shapes and proofs about them, names, surgery, opsets."""
