/* Stands for the board's Vulkan loader when programs are linked; it is never run. ggml fetches all else
 * from the loader by name. */
void vkGetInstanceProcAddr(void) {}
void vkGetDeviceProcAddr(void) {}
void vkCmdCopyBuffer(void) {}
