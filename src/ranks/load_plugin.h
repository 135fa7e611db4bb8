// src/ranks/load_plugin.h: loads attn's library for one MPI.
#pragma once
#include "ranks/plugin.h"

#include <string>
#include <vector>

namespace attn::mpi {

/// The functions of the library, which stays loaded.
struct Plugin {
  bool found = false;   // a file was loaded
  bool fits = false;    // it is of this build: the functions are there
  std::string failure;  // why the last file was not loaded
  decltype(&attn_mpi_begin) begin = nullptr;
  decltype(&attn_mpi_end) end = nullptr;
  decltype(&attn_mpi_state) state = nullptr;
  decltype(&attn_mpi_version) version = nullptr;
  decltype(&attn_mpi_family) family = nullptr;
  decltype(&attn_mpi_over) over = nullptr;
  decltype(&attn_mpi_close) close = nullptr;
};

/// Loads the first of the files that can be loaded.
Plugin load_plugin(const std::vector<std::string>& files);

}  // namespace attn::mpi
