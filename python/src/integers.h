// python/src/integers.h: lengths, rows and ids: whole numbers in lists, tuples, ranges and arrays of any width.
#pragma once
#include "arrays.h"

namespace attn::python {

/// A list, a tuple or a range.
bool is_listed(nb::handle x);

/// Whole numbers as an array that view_of reads: lists (of lists, too) become NumPy's int64, so do integers of other
/// widths (torch's stay torch's); int64, int32 and what is no array of integers stay as they are, for the library to
/// judge.
///
/// Errors   TypeError for what is neither a list nor an array, for numbers of a list that are not whole; ValueError for
///          lists of unequal lengths, for more than 2^24 numbers in lists, for what does not fit into 64 bits.
nb::object integers(nb::handle x, const Argument& argument);

}  // namespace attn::python
