/* The part of NVIDIA's management library that the producer asks, for machines without a GPU.

   Signatures and error numbers as in nvml.h. The test sets what each GPU answers by `stand_in_set`:
   it may be lost, want a reset, hang, know other structs, or count errors. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { OK = 0, INVALID = 2, NOT_SUPPORTED = 3, NO_PERMISSION = 4, NO_DRIVER = 9, TIMEOUT = 10, LOST = 15, RESET = 16, MISMATCH = 25 };
typedef unsigned long long u64;
typedef struct {
  u64 lost, reset, hang_ms, other_structs, no_ecc, forbidden, dram_ce, dram_ue, sram_ue, pending, temp, xid;
} Gpu;
static Gpu gpus[8];
static unsigned count = 2;
static u64 calls;

__attribute__((constructor)) static void begin(void) {
  const char *said = getenv("STAND_IN_GPUS");
  if (said && atoi(said) > 0 && atoi(said) <= 8) count = atoi(said);
}
void stand_in_reset(unsigned n) { memset(gpus, 0, sizeof gpus); count = n; calls = 0; }
u64 stand_in_calls(void) { return calls; }
void stand_in_set(unsigned at, const char *what, u64 value) {
  static const char *names[] = {"lost", "reset", "hang_ms", "other_structs", "no_ecc", "forbidden",
                                "dram_ce", "dram_ue", "sram_ue", "pending", "temp", "xid"};
  for (unsigned k = 0; k < sizeof names / sizeof *names; k++)
    if (!strcmp(what, names[k])) ((u64 *)&gpus[at])[k] = value;
}
static int asked(Gpu *gpu) {
  __atomic_add_fetch(&calls, 1, __ATOMIC_RELAXED);
  if (gpu->hang_ms) usleep(gpu->hang_ms * 1000);
  return gpu->lost ? LOST : gpu->reset ? RESET : OK;
}
#define ANSWER(gpu, where, value) { int is = asked(gpu); if (!is) *(where) = (value); return is; }

int nvmlInitWithFlags(unsigned flags) { return count ? OK : NO_DRIVER; }
int nvmlShutdown(void) { return OK; }
const char *nvmlErrorString(int code) {
  return code == LOST ? "GPU is lost" : code == RESET ? "GPU requires reset" : code == NO_PERMISSION ? "Insufficient Permissions" : "Unknown Error";
}
int nvmlDeviceGetCount_v2(unsigned *n) { *n = count; return OK; }
int nvmlDeviceGetHandleByIndex_v2(unsigned at, Gpu **gpu) {
  *gpu = &gpus[at];
  return at >= count ? INVALID : gpus[at].lost ? LOST : OK;
}
int nvmlDeviceGetHandleByPciBusId_v2(const char *pci, Gpu **gpu) {
  unsigned bus;
  if (sscanf(pci, "0000:%x", &bus) != 1 || bus >= count) return INVALID;
  return nvmlDeviceGetHandleByIndex_v2(bus, gpu);
}
typedef struct { char legacy[16]; unsigned domain, bus, device, id, sub; char bus_id[32]; } Pci;
int nvmlDeviceGetPciInfo_v3(Gpu *gpu, Pci *pci) {
  memset(pci, 0, sizeof *pci);
  snprintf(pci->bus_id, 32, "00000000:%02X:00.0", (unsigned)(gpu - gpus));
  return OK;
}
int nvmlDeviceGetUUID(Gpu *gpu, char *text, unsigned n) { snprintf(text, n, "GPU-%d", (int)(gpu - gpus)); return OK; }
int nvmlDeviceGetSerial(Gpu *gpu, char *text, unsigned n) { return NOT_SUPPORTED; }
int nvmlDeviceGetName(Gpu *gpu, char *text, unsigned n) { snprintf(text, n, "Stand-In"); return OK; }

int nvmlDeviceGetMemoryErrorCounter(Gpu *gpu, int kind, int counter, int place, u64 *n) {
  if (gpu->no_ecc) return NOT_SUPPORTED;
  ANSWER(gpu, n, place == 2 ? (kind ? gpu->dram_ue : gpu->dram_ce) : kind ? gpu->sram_ue : 0)
}
typedef struct { unsigned version; u64 a[11]; unsigned exceeded; } Sram;
int nvmlDeviceGetSramEccErrorStatus(Gpu *gpu, Sram *status) {
  if (gpu->other_structs) return MISMATCH;
  if (gpu->no_ecc) return NOT_SUPPORTED;
  memset(status->a, 0, sizeof status->a);
  status->a[3] = gpu->sram_ue; /* volatile, by parity */
  status->exceeded = 0;
  return asked(gpu);
}
int nvmlDeviceGetRemappedRows(Gpu *gpu, unsigned *ce, unsigned *ue, unsigned *pending, unsigned *failed) {
  *ce = 1, *ue = 2, *failed = 0;
  ANSWER(gpu, pending, gpu->pending)
}
int nvmlDeviceGetRowRemapperHistogram(Gpu *gpu, unsigned *banks) {
  banks[0] = 630, banks[1] = 6, banks[2] = 2, banks[3] = 1, banks[4] = 1;
  return asked(gpu);
}
int nvmlDeviceGetTemperature(Gpu *gpu, int sensor, unsigned *c) ANSWER(gpu, c, gpu->temp)
int nvmlDeviceGetPowerUsage(Gpu *gpu, unsigned *mw) ANSWER(gpu, mw, 700000)
int nvmlDeviceGetEnforcedPowerLimit(Gpu *gpu, unsigned *mw) {
  if (gpu->forbidden) return NO_PERMISSION;
  ANSWER(gpu, mw, 700000)
}
int nvmlDeviceGetClockInfo(Gpu *gpu, int clock, unsigned *mhz) ANSWER(gpu, mhz, clock == 1 ? 1980 : 2619)
int nvmlDeviceGetCurrentClocksEventReasons(Gpu *gpu, u64 *mask) ANSWER(gpu, mask, 0x4)
int nvmlDeviceGetPcieReplayCounter(Gpu *gpu, unsigned *n) ANSWER(gpu, n, 3)
int nvmlDeviceGetCurrPcieLinkWidth(Gpu *gpu, unsigned *n) ANSWER(gpu, n, 16)
int nvmlDeviceGetCurrPcieLinkGeneration(Gpu *gpu, unsigned *n) ANSWER(gpu, n, 5)
int nvmlDeviceGetUtilizationRates(Gpu *gpu, unsigned *rates) ANSWER(gpu, rates, 97)
int nvmlDeviceGetMemoryInfo(Gpu *gpu, u64 *memory) ANSWER(gpu, memory + 2, 5ULL << 30)
int nvmlDeviceGetNvLinkState(Gpu *gpu, unsigned link, unsigned *up) {
  if (link >= 18) return INVALID;
  ANSWER(gpu, up, 1)
}
typedef struct {
  unsigned field, scope;
  long long at, took;
  int type, returned;
  union { unsigned ui; u64 ull; double d; } value;
} Field;
int nvmlDeviceGetFieldValues(Gpu *gpu, int n, Field *fields) {
  for (int k = 0; k < n; k++) {
    fields[k].returned = fields[k].field == 230 ? NOT_SUPPORTED : OK;
    fields[k].type = fields[k].field == 82 ? 1 : 3;
    fields[k].value.ull = 0;
    if (fields[k].field == 82) fields[k].value.ui = 61;
    if (fields[k].field == 269) fields[k].value.ull = 5000;
    if (fields[k].field == 160) fields[k].type = 0, fields[k].value.d = 0.0 / 0.0;
  }
  return asked(gpu);
}
int nvmlEventSetCreate(void **set) { *set = gpus; return OK; }
int nvmlDeviceGetSupportedEventTypes(Gpu *gpu, u64 *mask) { *mask = gpu->no_ecc ? 0 : 0xf; return OK; }
int nvmlDeviceRegisterEvents(Gpu *gpu, u64 mask, void *set) { return mask & 8 ? OK : NOT_SUPPORTED; }
typedef struct { Gpu *gpu; u64 type, data; unsigned instance, compute; } Event;
int nvmlEventSetWait_v2(void *set, Event *event, unsigned timeout_ms) {
  for (unsigned waited_ms = 0; waited_ms < timeout_ms; waited_ms += 10) {
    for (unsigned k = 0; k < count; k++)
      if (gpus[k].xid) {
        memset(event, 0, sizeof *event);
        event->gpu = &gpus[k], event->type = 8, event->data = gpus[k].xid;
        gpus[k].xid = 0;
        return OK;
      }
    usleep(10000);
  }
  return TIMEOUT;
}
