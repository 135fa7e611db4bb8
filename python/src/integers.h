// python/src/integers.h: reads lengths, rows and ids: whole numbers in lists, tuples, ranges and arrays of any width.
#pragma once
#include "call_tensors.h"

namespace attn::python {

/// Returns whether x is a list, a tuple or a range.
bool is_listed(nb::handle x);

/// Converts whole numbers to an array that view_of reads. Lists (also lists of lists) and arrays of integers of other
/// widths become NumPy arrays of int64; torch tensors stay torch tensors. int64, int32 and everything that is not an
/// array of integers are returned unchanged, because the library checks them.
///
/// Errors   TypeError for anything but a list or an array, and for numbers of a list that are not whole; ValueError for
///          lists of unequal lengths, for more than 2^24 numbers in lists, for numbers that do not fit into 64 bits.
nb::object integers(nb::handle x, const Argument& argument);

}  // namespace attn::python
