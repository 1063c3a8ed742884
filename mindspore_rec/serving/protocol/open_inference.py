# SPDX-License-Identifier: Apache-2.0
"""Messages of `open_inference.proto`, in a pool of their own.

Needs protobuf (extra `grpc`).
"""

from __future__ import annotations

import base64
import zlib
from typing import Any

from google.protobuf import descriptor_pb2, message_factory
from google.protobuf.descriptor_pool import DescriptorPool

__all__ = ["METHODS", "POOL", "SERVICE", "message"]

_DESCRIPTOR = """
c-qxiTW{P%6t2COBqy6qGMl7}$>!pyB!ZGkDNv|{5R@uJO-eCsgOJe5o1HW(Hn#C4bbk!ufp>lYue>24c;k`ZfcOK<&Ev7x-
py8xD&9P2zWL^yGv}L&;h$|-ay{&{d(J8Lv2%iVJ>LyoG$RdW0~Wu;{ss0Adl%Tk-$ghG%^g6hG4Na`zz9LPPufjwL))3Q*t
fY9BQ0!q2l4o~ppmi)f+eW<)F2pm!~7T)kK8Wqs|<85$3EwC%~<RkHDQWS20hnl>dYKB%{Kw56eFj*4$IuPBOKaYJG5h`Phl
n7kpzBuXV4k|ejZ|nHiBkpqeMCti}@)mF=sRLPZ;taIxJ^sMtEz$v=|r=BI=QB(>||nho`Q8PQ0aKWE<^6wdZ(I7&Oad)a>4
^-K3OqXWxBH!gP}qis9%0rraoGOqCa7ipLvIp`Pw4ikS9=0}qST$u=#F;LIi+ba6@+Z<v2+P(PqPJ+ghm5Mm##19V)s-}b15
m(gd}tQl%!AhZdyJtutc9f6<|l?Vcukwdni7KDD!c_uI{#RN0UtrFCAqfQ?SP?>-<3gT7?iqzRE1XQM=D4FgP1Pfm5fBWRj?
GcUtszZZC#`AX1bx1LiMcINm7T$?4kO)geC^c%7piQU|`UFGEr()5tCFBOwxnB~*6FbMO>U2?xiq_Pe#e$NcZJ3WTWVB$)Ry
`VGJN0hwC9o=i=~j&z(;$^=ihwi<QkaPQok56$1T{@iHEWJpW0?8FwAiRvDr42Q0M4ngtyJI)vpl3_NF3nZX&Kj;@u}D`>Y(
?!LVM&39RkQTjFopYs~6RaU0JfheJAt>mNFjQmm22EdwV1kYaCEKFBYlbFA@b;8PA>ZJfeZSpR<vIG3G%x0r~d#Z8kxAiE7p
Y>0xff`8R&oVIk|?%aK0%CMV$^PL!sRD{vR4m15Qi`I<tWqfATUjjv!nLyZ=o^erBUkm)D71(gfCAMtQ!_g>4gO9qSM?&|Mr
#=jaE#jBK?*=MOd=`2tCFIWbnGIoVgUm3IccSYPnM9ktizKRXvD5qYFWGzn9QS~|ga87fvR=%Wnp+P0ho9Vr|W-XE~K1_=GP
aPJA=w6bl+c{bKXu`<;hq}JH3jalernqN&ZqN%|fA9+KN`!|W*U43>MtPXA_!4vsD~a0&P8UCqk8pD3@MVuG(|TfNT9pq9U4
2meror_gW+8rZ_A(*!t5sU01!Ll}q$V-gI0Hzm6Fx_%Hi%5H*gkjztw5D{9}sw%nMKR|Q3oS&j7@sz+TDp$mEQIA?5_7DCCw
7c&AYj|$+|G|*yvoQ^gl?K{#JHJ$SH1B1TA<y*E_y?=1)4TX8NBv{VPb}aZU>F6sIud#4AtYI<yM><7wRcxe81B)}wm|F)e+
X6B(li0LiZjw5rTI^c%xy74(Xwx`rOYtn!}%4dc~+62@9lx8!>ubjs;ghm)ePwF-JA*)i19|0B@GkOP^22*&0Jgd~0pbEy|M
S}%T!bJ~q@k98$>wqnDvs~5rH*i)x4A^RHUGutED9JO_FT66sFO1Mv<kt1Mq<5Js?@y0lqoTm@VxiyZqFR4;vXFM>Tty5)x_
HO?N-S=xj
"""  # by tools/proto_descriptor.py

SERVICE = "inference.GRPCInferenceService"

POOL = DescriptorPool()
"""The messages' pool: another package's messages of the same names are in another one."""

for _file in descriptor_pb2.FileDescriptorSet.FromString(
    zlib.decompress(base64.b85decode(_DESCRIPTOR.replace("\n", "")))
).file:
    POOL.Add(_file)

METHODS = [method.name for method in POOL.FindServiceByName(SERVICE).methods]
"""Names of the service's methods."""


def message(name: str) -> Any:
    """Return the class of a message.

    Example:
        >>> message("ServerLiveResponse")(live=True).live
        True
    """
    return message_factory.GetMessageClass(POOL.FindMessageTypeByName(f"inference.{name}"))
