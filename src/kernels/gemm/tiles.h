// src/kernels/gemm/tiles.h: how a matrix product is cut: by its shape, here and there by the threads there are; no bit
// depends on the cut.
#pragma once
#include <cstdint>

namespace attn::kernels {

/// Products of a chain before its sum is added to the result: part of the order of operations (docs/numerics.md section
/// 5).
inline constexpr int k_block = 256;

/// Rows of a register tile: 9 x 3 vectors use 27 of 32 accumulators, 6 x 2 use 12 of AVX2's 16. 12 x 2 loses 1 to 4
/// points (more of B is read per FMA).
inline constexpr int max_tile_rows = 9;

/// Words of k that a tile walks at once: a packed panel of B (48 columns, 393 KB) stays in L2. Against 256: 2 to 7
/// points. Less where A is packed too.
inline constexpr std::int64_t chunk_words = 2048;
inline constexpr std::int64_t packed_chunk_words = 1024;

/// Panels that the rows of a part pass by together, as long as these bytes of them stay in L2: a row of A comes to L1
/// once for all of them. Against one after the other 2,048 x 384 x 1,536 of bf16 takes a tenth less time where A (1.5
/// MB) is larger than L2.
inline constexpr std::int64_t group_bytes = 448 << 10;
inline constexpr std::int64_t most_group_panels = 16;

/// An A whose rows are not runs (a product with a transposed matrix) is read where it is if its columns are nearer than
/// this, a page; else every step along k would be on another page. 384 x 768 x 128: .34 of the peak packed, .87 as it
/// is; 1,024 cubed: .87 and .75.
inline constexpr std::int64_t direct_bytes = 2048;

/// Multiply-adds from which an A that has to be packed is worth a B that is packed before, by all threads: about 50 us
/// of AVX-512.
inline constexpr std::int64_t least_shared_work = 1 << 24;

/// Rows of a part that packs its rows of A and all of B, at least. As many parts as threads, or twice as many, wait for
/// no other: of bf16, against a B that is packed before, 768 x 128 x 384 takes .9 of the time, 512 x 768 x 3072 .95,
/// 1,024 cubed .98; 4096 x 768 x 768 in eight parts 1.02.
inline constexpr std::int64_t own_b_rows = 192;

/// Rows and panels of columns of one part of the work, at most. A part packs its own columns of B: 1,024 rows make that
/// 1 % of its time. Where it packs A too, more panels share that.
inline constexpr std::int64_t part_rows = 1024;
inline constexpr std::int64_t part_panels = 8;
inline constexpr std::int64_t packed_part_rows = 512;
inline constexpr std::int64_t packed_part_panels = 16;

/// Parts wanted for many threads, as long as each keeps this many multiply-adds (0.25 ms of AVX-512) and these rows or
/// panels.
inline constexpr std::int64_t wanted_parts = 16;
inline constexpr std::int64_t least_part_work = 1 << 24;
inline constexpr std::int64_t least_part_rows = 512;
inline constexpr std::int64_t least_part_panels = 4;
/// A product that would still be few parts (a layer of a small model) is cut finer: 768 x 128 x 128 ran on one thread,
/// and now takes half the time on two. Below 128 rows packing B for each part would cost more than a quarter.
inline constexpr std::int64_t few_parts = 8;
/// Of parts that have as many panels each so many a thread are enough: 768 x 128 x 384 of bf16 takes 1 to 5 % less time
/// in four than in eight.
inline constexpr std::int64_t alike_parts_of_thread = 2;
inline constexpr std::int64_t least_few_work = 1 << 21;
inline constexpr std::int64_t least_few_rows = 128;

/// Products of so few rows read B as it is, once; parts of them have at least so many bytes of B, and there are no more
/// of them: each walks through neighbouring memory. A B of fewer bytes may be in L2 (the weights of a
/// model whose layers take transposes are in none: at 8 MiB its layers ran at a quarter of the speed of memory).
inline constexpr std::int64_t small_rows_most = 8;
inline constexpr std::int64_t small_part_bytes = 192 << 10;
inline constexpr std::int64_t most_small_parts = 64;
/// Columns of a part, in units of 32, where rows of B are runs of columns: 6 KB of f32. Parts of 4 units took 1.3 to
/// 1.6 times as long on processors that prefetch along such runs.
inline constexpr std::int64_t small_run_units = 48;
inline constexpr std::int64_t small_cached_bytes = 1 << 20;

/// Tile registers. Columns whose packed chunk of k stays in L2 while all rows of a part pass (512 KB and
/// 1.25 MB: 3 points of the peak less), and units of that chunk; rows of a part where sums wait between chunks. Panels
/// of columns of a part, at least, for the sake of the block of rows that stays in L1 (3 panels: 8
/// points). Parts are worth a thread from so many multiply-adds, 3 us. Units of k that are packed at a time where rows
/// of b are read.
inline constexpr std::int64_t register_columns_bytes = 1 << 20;
inline constexpr std::int64_t register_chunk_units = 32;
inline constexpr std::int64_t register_part_rows = 1024;
inline constexpr std::int64_t register_part_panels = 8;
inline constexpr std::int64_t least_register_work = 1 << 23;
inline constexpr std::int64_t packed_piece_units = 2;
/// Rows of parts that all pack the same columns: it shows by 50 / rows.
inline constexpr std::int64_t unpacked_part_rows = 512;
/// Up to so many rows, b whose items are runs along k is read where it lies and y computed transposed: parts of so many
/// of b's bytes and columns.
inline constexpr std::int64_t transposed_rows_most = 64;
inline constexpr std::int64_t transposed_rows_bytes = 8 << 20;
inline constexpr std::int64_t transposed_part_rows = 8192;
/// Parts that pack their rows of a: all of b passes by each, so they have so many rows, and so many columns that the
/// packing of the same rows by others does not show. Against parts of 32 rows 512 x 768 x 3072 takes 40 % less time,
/// 768 x 8192 x 3072 a quarter. Fewer parts than few_register_parts, or than threads, are cut all the same.
inline constexpr std::int64_t packed_rows_least = 256;
inline constexpr std::int64_t packed_rows_bytes = 4 << 20;
inline constexpr std::int64_t packed_columns_least = 768;
inline constexpr std::int64_t few_register_parts = 4;
/// Rows that are multiplied by vectors, in the same order. Few rows: panels that are packed together. Rows of b of more
/// bytes are fetched ahead.
inline constexpr std::int64_t vector_rows_most = 2;
inline constexpr std::int64_t register_group = 16;
inline constexpr std::int64_t register_cached_bytes = 2 << 20;

/// `total` cut into `pieces` pieces as even as can be: where piece i begins.
inline constexpr std::int64_t even_cut(std::int64_t total, std::int64_t pieces, std::int64_t i) {
  return total / pieces * i + (i < total % pieces ? i : total % pieces);
}
inline constexpr std::int64_t pieces_of(std::int64_t total, std::int64_t most) { return (total + most - 1) / most; }

/// Panels of up to `most` vectors. Of two and a bit four are made: two threads then have as much each.
inline constexpr std::int64_t panels_of(std::int64_t vectors, std::int64_t most) {
  const std::int64_t panels = pieces_of(vectors, most);
  return panels == 3 && vectors < 3 * most ? 4 : panels;
}

/// How many parts a product has, down its rows and along its panels of columns.
struct PartGrid {
  std::int64_t row_parts, column_parts;
};
inline constexpr PartGrid part_grid(std::int64_t rows, std::int64_t panels, std::int64_t work, std::int64_t b_bytes,
                                    bool pack_a, std::int64_t threads) {
  if (rows <= small_rows_most) {  // reading B takes the time
    const std::int64_t wanted =
        b_bytes / small_part_bytes < most_small_parts ? b_bytes / small_part_bytes : most_small_parts;
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

/// Parts of rows that each pack all of B; 0: it is better packed before, by all threads.
inline constexpr std::int64_t parts_with_b(std::int64_t rows, std::int64_t work, std::int64_t threads) {
  if (threads == 1 || work < least_shared_work) return 0;
  const std::int64_t parts = pieces_of(rows, threads) <= packed_part_rows ? threads : 2 * threads;
  return pieces_of(rows, parts) <= packed_part_rows && rows / parts >= own_b_rows ? parts : 0;
}

/// Parts of a product with both operands packed: rows alone, so that no part packs rows of A that another one has. All
/// of B passes by each: 128 rows take a tenth less time than 64 (768 x 4096 x 3072), as long as every thread has some.
inline constexpr PartGrid part_grid_of_rows(std::int64_t rows, std::int64_t work, std::int64_t threads) {
  const std::int64_t least_rows = rows >= 128 * threads ? 128 : 64;
  const std::int64_t wanted = work / least_few_work < wanted_parts ? work / least_few_work : wanted_parts;
  const std::int64_t most = pieces_of(rows, least_rows), least = pieces_of(rows, packed_part_rows),
                     parts = wanted < most ? wanted : most;
  // three parts would leave one of two threads without work
  const std::int64_t few = parts > threads && parts < 2 * threads ? 2 * threads : parts;
  return {few > least ? few : least, 1};
}

}  // namespace attn::kernels
