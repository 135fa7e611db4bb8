// include/attn/export.h: marks the symbols that the shared library exports.
#pragma once

#if defined(ATTN_STATIC)
#define ATTN_API
#elif defined(_WIN32)
#if defined(ATTN_BUILDING)
#define ATTN_API __declspec(dllexport)
#else
#define ATTN_API __declspec(dllimport)
#endif
#else
#define ATTN_API __attribute__((visibility("default")))
#endif
