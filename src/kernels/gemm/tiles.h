// src/kernels/gemm/tiles.h: decides how a matrix product is split into parts: by its shape, and in some cases by the
// number of threads; no bit depends on the split.
#pragma once
#include <cstdint>

namespace attn::kernels {

/// The length of a chain: after this many products its sum is added to the total. It is part of the order of operations
/// (docs/numerics.md section 5).
inline constexpr int k_block = 256;

/// The rows of a register tile: 9 x 3 vectors use 27 of 32 registers as accumulators, 6 x 2 use 12 of AVX2's 16. 12 x 2
/// loses 1 to 4 percentage points of peak, because more of B is read per FMA.
inline constexpr int max_tile_rows = 9;

/// The length of a chunk of k in words (a word is one element; in bf16 a pair): a packed panel of B (48 columns, 393
/// KB) then stays in L2. 2,048 words gain 2 to 7 percentage points of peak over 256. If A is packed too, the chunk is
/// smaller.
inline constexpr std::int64_t chunk_words = 2048;
inline constexpr std::int64_t packed_chunk_words = 1024;

/// Each row tile of A is multiplied by a group of panels of B in turn, so that a row of A is loaded into L1 once for
/// the group. A group has at most this many bytes, which stay in L2, and at most most_group_panels panels. Compared
/// with one panel after the other, 2,048 x 384 x 1,536 in bf16 takes 10 % less time if A (1.5 MB) exceeds L2.
inline constexpr std::int64_t group_bytes = 448 << 10;
inline constexpr std::int64_t most_group_panels = 16;

/// If the rows of A are not contiguous (A is transposed), A is read in place if its adjacent columns are less than this
/// many bytes apart, and is packed otherwise, because every step along k would touch another page. Fraction of peak,
/// packed and in place: 384 x 768 x 128 0.34 and 0.87, 1,024 cubed 0.87 and 0.75.
inline constexpr std::int64_t direct_bytes = 2048;

/// If A must be packed, all threads pack B first in products with at least this many multiply-adds.
inline constexpr std::int64_t least_shared_work = 1 << 24;

/// Instead, each part may pack its rows of A and all of B, if parts have at least this many rows. There are then as
/// many parts as threads, or twice as many, so no part waits for another. Time in bf16 relative to packing B first: 768
/// x 128 x 384 0.9, 512 x 768 x 3072 0.95, 1,024 cubed 0.98; 4096 x 768 x 768 in eight parts 1.02.
inline constexpr std::int64_t own_b_rows = 192;

/// The maximum rows and panels of columns of one part. A part packs its own columns of B: with 1,024 rows that is 1 %
/// of its time. If it packs A too, more panels share the cost.
inline constexpr std::int64_t part_rows = 1024;
inline constexpr std::int64_t part_panels = 8;
inline constexpr std::int64_t packed_part_rows = 512;
inline constexpr std::int64_t packed_part_panels = 16;

/// The number of parts wanted for many threads, as long as each keeps least_part_work multiply-adds (0.25 ms of
/// AVX-512) and about least_part_rows rows or least_part_panels panels.
inline constexpr std::int64_t wanted_parts = 16;
inline constexpr std::int64_t least_part_work = 1 << 24;
inline constexpr std::int64_t least_part_rows = 512;
inline constexpr std::int64_t least_part_panels = 4;
/// A product that still has fewer than few_parts parts (a layer of a small model) is split finer: 768 x 128 x 128 takes
/// half the time on two threads. Below least_few_rows rows, packing B for each part would cost more than a quarter of
/// the time.
inline constexpr std::int64_t few_parts = 8;
/// If all parts have the same number of panels, this many parts per thread are enough: 768 x 128 x 384 in bf16 takes 1
/// to 5 % less time in four parts than in eight.
inline constexpr std::int64_t alike_parts_of_thread = 2;
inline constexpr std::int64_t least_few_work = 1 << 21;
inline constexpr std::int64_t least_few_rows = 128;

/// Products of at most few_rows_most rows read B in place, once. They have at most most_few_rows_parts parts, and a
/// part reads at least few_rows_part_bytes of B, if there are several. Only a B of at most few_rows_cached_bytes counts
/// as cached in L2: with a limit of 8 MiB, the layers of a model with transposed weights ran at a quarter of memory
/// bandwidth, because their weights are not in L2.
inline constexpr std::int64_t few_rows_most = 8;
inline constexpr std::int64_t few_rows_part_bytes = 192 << 10;
inline constexpr std::int64_t most_few_rows_parts = 64;
/// If the rows of B are contiguous, a part has at most this many columns, in units of 32 (6 KB of a row in f32), unless
/// there would be too many parts. Parts of 4 units took 1.3 to 1.6 times as long on processors that prefetch along such
/// rows.
inline constexpr std::int64_t few_rows_run_units = 48;
inline constexpr std::int64_t few_rows_cached_bytes = 1 << 20;

/// Products by AMX tiles. A unit is 32 items of k, one step of a tile. amx_columns_bytes: packed columns (one chunk of
/// k) that stay in L2 while all rows of a part are multiplied by them (512 KB and 1.25 MB lose 3 percentage points of
/// peak). amx_chunk_units: units in a chunk. amx_part_rows: rows of a part if sums are kept between chunks.
/// amx_part_panels: minimum panels of a part, because a block of rows stays in L1 while they are multiplied by it (3
/// panels lose 8 points). least_amx_work: multiply-adds from which a part is worth a thread (16,384 clock cycles of the
/// tile unit). packed_piece_units: units of k that are packed at a time if the rows of b are contiguous.
inline constexpr std::int64_t amx_columns_bytes = 1 << 20;
inline constexpr std::int64_t amx_chunk_units = 32;
inline constexpr std::int64_t amx_part_rows = 1024;
inline constexpr std::int64_t amx_part_panels = 8;
inline constexpr std::int64_t least_amx_work = 1 << 23;
inline constexpr std::int64_t packed_piece_units = 2;
/// The minimum rows of a part if all parts pack the same columns: packing takes about 50 / rows of the time.
inline constexpr std::int64_t unpacked_part_rows = 512;
/// If a has up to transposed_rows_most rows and b is contiguous along k, b is read in place and y is computed
/// transposed, in parts of at most transposed_rows_bytes and transposed_part_rows columns of b.
inline constexpr std::int64_t transposed_rows_most = 64;
inline constexpr std::int64_t transposed_rows_bytes = 8 << 20;
inline constexpr std::int64_t transposed_part_rows = 8192;
/// If a must be packed, each part packs its rows of a and reads all of b. So a part keeps packed_rows_least rows (at
/// most about packed_rows_bytes of a), and columns are split only while a part keeps packed_columns_least of them: then
/// packing the same rows in several parts costs little. Compared with parts of 32 rows, 512 x 768 x 3072 takes 40 %
/// less time, 768 x 8192 x 3072 25 %. If there are fewer parts than few_amx_parts or than threads, the product is split
/// nevertheless.
inline constexpr std::int64_t packed_rows_least = 256;
inline constexpr std::int64_t packed_rows_bytes = 4 << 20;
inline constexpr std::int64_t packed_columns_least = 768;
inline constexpr std::int64_t few_amx_parts = 4;
/// vector_rows_most: products of so few rows are computed by vectors instead of tiles, in the same order of operations.
/// amx_group: panels packed together when there are few rows. amx_cached_bytes: an operand that is read as rows is
/// prefetched if it is larger.
inline constexpr std::int64_t vector_rows_most = 2;
inline constexpr std::int64_t amx_group = 16;
inline constexpr std::int64_t amx_cached_bytes = 2 << 20;

/// Returns where piece i begins if `total` is split into `pieces` pieces as evenly as possible.
inline constexpr std::int64_t even_cut(std::int64_t total, std::int64_t pieces, std::int64_t i) {
  return total / pieces * i + (i < total % pieces ? i : total % pieces);
}
inline constexpr std::int64_t pieces_of(std::int64_t total, std::int64_t most) { return (total + most - 1) / most; }

/// Returns the number of panels of up to `most` vectors. Three panels that are not full become four, so that two
/// threads have equal work.
inline constexpr std::int64_t panels_of(std::int64_t vectors, std::int64_t most) {
  const std::int64_t panels = pieces_of(vectors, most);
  return panels == 3 && vectors < 3 * most ? 4 : panels;
}

/// The number of parts of a product, along its rows and along its panels of columns.
struct PartGrid {
  std::int64_t row_parts, column_parts;
};
inline constexpr PartGrid part_grid(std::int64_t rows, std::int64_t panels, std::int64_t work, std::int64_t b_bytes,
                                    bool pack_a, std::int64_t threads) {
  if (rows <= few_rows_most) {  // reading B takes most of the time
    const std::int64_t wanted =
        b_bytes / few_rows_part_bytes < most_few_rows_parts ? b_bytes / few_rows_part_bytes : most_few_rows_parts;
    return {1, wanted < 1 ? 1 : wanted < panels ? wanted : panels};
  }
  PartGrid grid = {pieces_of(rows, pack_a ? packed_part_rows : part_rows),
                   pieces_of(panels, pack_a ? packed_part_panels : part_panels)};
  const std::int64_t wanted = work / least_part_work < wanted_parts ? work / least_part_work : wanted_parts;
  while (grid.row_parts * grid.column_parts < wanted) {
    if (!pack_a && panels / grid.column_parts >= 2 * least_part_panels - 1) {
      grid.column_parts *= 2;
    } else if (rows / grid.row_parts >= (pack_a ? least_part_rows : 2 * least_part_rows)) {
      grid.row_parts *= 2;
    } else {
      break;
    }
  }
  const std::int64_t few = work / least_few_work < few_parts ? work / least_few_work : few_parts;
  while (grid.row_parts * grid.column_parts < few) {
    if (grid.row_parts * grid.column_parts >= alike_parts_of_thread * threads && panels % grid.column_parts == 0) break;
    if (!pack_a && panels / grid.column_parts >= 2) {
      grid.column_parts *= 2;
    } else if (rows / grid.row_parts >= 2 * least_few_rows) {
      grid.row_parts *= 2;
    } else if (panels / grid.column_parts >= 2) {
      grid.column_parts *= 2;
    } else {
      break;
    }
  }
  return grid;
}

/// Returns the number of row parts that each pack all of B; 0: all threads should pack B first.
inline constexpr std::int64_t parts_with_b(std::int64_t rows, std::int64_t work, std::int64_t threads) {
  if (threads == 1 || work < least_shared_work) return 0;
  const std::int64_t parts = pieces_of(rows, threads) <= packed_part_rows ? threads : 2 * threads;
  return pieces_of(rows, parts) <= packed_part_rows && rows / parts >= own_b_rows ? parts : 0;
}

/// Returns the parts of a product whose operands are both packed. Only the rows are split, so that no two parts pack
/// the same rows of A. Each part reads all of B: with 128 rows it takes 10 % less time than with 64 (768 x 4096 x
/// 3072), if every thread has a part.
inline constexpr PartGrid part_grid_of_rows(std::int64_t rows, std::int64_t work, std::int64_t threads) {
  const std::int64_t least_rows = rows >= 128 * threads ? 128 : 64;
  const std::int64_t wanted = work / least_few_work < wanted_parts ? work / least_few_work : wanted_parts;
  const std::int64_t most = pieces_of(rows, least_rows), least = pieces_of(rows, packed_part_rows),
                     parts = wanted < most ? wanted : most;
  // with three parts, one of two threads would be idle at the end
  const std::int64_t few = parts > threads && parts < 2 * threads ? 2 * threads : parts;
  return {few > least ? few : least, 1};
}

}  // namespace attn::kernels
