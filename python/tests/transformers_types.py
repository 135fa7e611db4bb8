# python/tests/transformers_types.py: which model types of transformers 5.24 "attn" serves;
# of those that can be made tiny.

# attn's function is called, and eager's results come out. A type never leaves this list.
SERVED = """
afmoe aimv2 aimv2_vision_model albert altclip apertus apertus1p5_text arcee aria aria_text audioflamingo3 axk1 axk2
aya_vision bamba bart beam beit bert bert-generation bigbird_pegasus biogpt bitnet blenderbot blenderbot-small
camembert canary chinese_clip chinese_clip_vision_model clip clip_text_model clip_vision_model clipseg codegen cohere
cohere2 cohere2_moe cohere2_vision cohere_asr cohere_compass_vision cosmos3_omni ctrl cwm data2vec-audio data2vec-text
deepseek_v2 deepseek_v3 deepseek_v32 deepseek_v4 deepseek_vl deepseek_vl_hybrid deit diffllama dinov2
dinov2_with_registers dinov3_vit distilbert doge dpr dpt electra embedding_gemma2 embedding_gemma2_text
encoder-decoder ernie ernie4_5 ernie4_5_moe eurobert exaone exaone4 exaone4_5 exaone4_5_vision exaone_moe falcon_h1
flex_olmo flint fuyu gemma gemma2 gemma3 gemma3_text gemma3n_text gemma4 gemma4_text gemma4_unified
gemma4_unified_text glm glm4 glm4_moe glm4_moe_lite glm4v_moe glm4v_moe_text glm5_next_vision glm_image glm_image_text
glm_moe_dsa glm_ocr glm_ocr_text glmasr glmasr_encoder got_ocr2 gpt2 gpt_bigcode gpt_neox gpt_oss gptj granite
granite_docling granite_docling_text granite_docling_vision granite_speech granite_speech_plus granite_swa granitemoe
granitemoe_swa granitemoehybrid granitemoeshared gte helium higgs_audio_v2 hrm_text hubert hunyuan_v1_dense
hunyuan_v1_moe hy_v3 hy_v4 hyperclovax hyperclovax_vision_v2 idefics2 idefics3 idefics3_vision ijepa inkling2
inkling2_loop inkling2_loop_text inkling2_text inkling_text internlm3 internvl internvl_vision iquestcoder jais2 jamba
jetmoe jina_embeddings_v3 kimi_k25 kimi_linear kolibri1 kosmos-2.5 laguna lara_mini lasr_ctc lasr_encoder layoutlm
layoutlmv3 lfm2 lfm2_vl lfm3 lfm3_vl lighton_ocr llama llama4_text llava llava_next llava_next_video llava_onevision
longcat_flash longt5 m2m_100 marian markuplm mbart mellum metaclip_2 mimo_v2_flash minicpm3 minicpm_ocr minicpmv4_6
minicpmv4_7 minimax minimax_m2 minimax_m3_vl minimax_m3_vl_text ministral ministral3 mistral mistral3 mistral_large4
mistral_large4_text mixtral mlcd mlcd_vision_model mllama modernbert modernbert-decoder modernvbert molmo2_text
moonshine moss_transcribe_diarize moss_transcribe_diarize_audio mt5 muse_glimmer muse_glimmer_text muse_spark_text
musicflamingo nanochat nemo_speechlm nemotron3_5_asr nemotron_asr_streaming nemotron_asr_streaming_encoder nemotron_h
nllb-moe nomic_bert olmo olmo2 olmo3 olmo_hybrid olmoe omniasr openai_privacy_filter opt ovis2 owlv2 owlvit
parakeet_ctc parakeet_encoder parakeet_rnnt parakeet_tdt pegasus pegasus_x persimmon phi phi3 phi4_multimodal phimoe
pixio pixtral plbart pop2piano pp_chart2table qianfan_ocr qianfan_ocr_vision qwen2 qwen2_audio qwen2_audio_encoder
qwen2_moe qwen3 qwen3_5 qwen3_5_moe qwen3_5_moe_text qwen3_5_moe_vision qwen3_5_text qwen3_5_vision qwen3_asr
qwen3_moe qwen3_next qwen3_vl qwen3_vl_moe qwen3_vl_moe_text qwen3_vl_moe_vision qwen3_vl_text qwen3_vl_vision
qwen4_exp_vision radio recurrent_gemma roberta roberta-prelayernorm roc_bert sam3_vision_model sam3_vit_model sapiens2
sarvam_mla sarvam_moe seamless_m4t seamless_m4t_v2 seed_oss segformer sew shieldgemma2 siglip_vision_model smollm3
smolvlm smolvlm_vision solar_open speech-encoder-decoder splinter stablelm starcoder2 switch_transformers t5 t5gemma
t5gemma2 tipsv2 tipsv2_text_model tipsv2_vision_model ultrabert ultravbert umt5 unispeech unispeech-sat vaultgemma
video_llama_3 video_llava videomae vipllava vision-text-dual-encoder vit vit_mae vit_msn vivit voxtral voxtral_encoder
voxtral_realtime_encoder wav2vec2 whisper xlm-roberta xlm-roberta-xl xmod youtu zamba2 zaya
""".split()

# Nothing in them calls an attention function: no attention, or one that their code always computes itself.
UNTOUCHED = """
falcon_mamba fnet focalnet gemma4_audio mamba mamba2 mobilenet_v1 mobilenet_v2 poolformer regnet resnet
sam3_lite_text_text_model
""".split()

# They compute their attention themselves (or choose it from a list of names of their own), and are refused by name.
REFUSED = """
big_bird blip bloom canine convbert cpmant data2vec-vision deberta deberta-v2 falcon fastspeech2_conformer flaubert
fsmt funnel git gpt_neo gpt_neox_japanese groupvit hiera ibert imagegpt led longformer megatron-bert mobilevit mpnet
mpt mra mvp nystromformer openai-gpt prophetnet rembert roformer rwkv sam_hq_vision_model sam_vision_model sew-d
speecht5 squeezebert swiftformer tapas trocr visual_bert vitdet wavlm xglm xlm xlnet yoso
""".split()
